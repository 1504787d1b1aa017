"""Functions of nodes that behave badly, or well; a node's process imports them by name."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

from tfos_core.context import TFNodeContext

LONG_LINE = 100_000
LONG_MESSAGE = 40_000_000


def show(args: Any, ctx: TFNodeContext) -> None:
    """Prints what the process was given, as one JSON line."""
    seen = {name: os.environ.get(name) for name in ("TF_CONFIG", "TFOS_NODE", "SECRET", "PLAIN")}
    print(json.dumps({"args": args, "argv": sys.argv, "ctx": repr(ctx), "cwd": str(Path.cwd()), **seen}))


def print_strange_bytes(args: Any, ctx: TFNodeContext) -> None:
    """Prints what is no UTF-8, a line that is too long, and a last line without an end."""
    os.write(1, b"caf\xe9\r\n" + b"x" * LONG_LINE + b"\nthe end")


def release(args: Any, ctx: TFNodeContext) -> None:
    """Binds the node's port, once it may."""
    port = int(ctx.cluster_spec["worker"][ctx.task_index].rpartition(":")[2])
    print("before", _can_bind(port))
    ctx.release_port()
    print("after", _can_bind(port))


def _can_bind(port: int) -> bool:
    with socket.socket() as sock:
        try:
            sock.bind(("0.0.0.0", port))
        except OSError:
            return False
        return True


def show_mappings(args: Any, ctx: TFNodeContext) -> None:
    """Prints, as one JSON line, which files of the feed the process has mapped; then a row counts as consumed."""
    with Path("/proc/self/maps").open() as maps:
        print(json.dumps([line.split(None, 5)[5].strip() for line in maps if "progress" in line]))
    ctx.mgr._progress.advance(1)


def wait(args: Any, ctx: TFNodeContext) -> None:
    """Prints the pid of a daemonised grandchild and never returns."""
    _leave_grandchild()
    threading.Event().wait()


def leave_temporary_file(args: Any, ctx: TFNodeContext) -> None:
    """Prints the path of a temporary file that nobody removes, and never returns."""
    print("temporary", tempfile.mkstemp()[1])
    threading.Event().wait()


def ignore_sigterm(args: Any, ctx: TFNodeContext) -> None:
    """Never returns, whatever is asked."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    print("ready")
    while True:
        signal.pause()


def leave_grandchild(args: Any, ctx: TFNodeContext) -> None:
    """Prints the pid of a daemonised grandchild, which holds the output open, and returns."""
    _leave_grandchild()


def _leave_grandchild() -> None:
    subprocess.run(["sh", "-c", "setsid sleep 600 & echo grandchild $!"], check=True)


def die(args: int, ctx: TFNodeContext) -> None:
    """Ends by a signal."""
    print("last words")
    os.kill(os.getpid(), args)


def leave_with(args: int, ctx: TFNodeContext) -> None:
    """Ends without a word."""
    os._exit(args)


def call_exit(args: Any, ctx: TFNodeContext) -> None:
    """Ends as a script does."""
    sys.exit(args)


def fail(args: Any, ctx: TFNodeContext) -> None:
    """Raises what it is told to."""
    raise args


def fail_at_length(args: Any, ctx: TFNodeContext) -> None:
    """The message of an error may be larger than a message of the control channel."""
    raise ValueError(f"first{'x' * LONG_MESSAGE}last")


class UnprintableError(Exception):
    """An error whose text is an error."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


def fail_without_text(args: Any, ctx: TFNodeContext) -> None:
    """Raises an error that can not be shown, with the output closed."""
    sys.stdout.close()
    raise UnprintableError


def fail_beside_a_thread(args: Any, ctx: TFNodeContext) -> None:
    """Raises, and leaves a thread that keeps the process."""
    threading.Thread(target=threading.Event().wait).start()
    raise ValueError("the reason")


def close_descriptors(args: Any, ctx: TFNodeContext) -> None:
    """Closes everything, as programs do that turn into daemons."""
    os.closerange(3, 256)
    sys.stdout.close()


def fork_child_that_fails(args: Any, ctx: TFNodeContext) -> None:
    """Only the function's own end is the node's."""
    child = os.fork()
    if not child:
        raise ValueError("of the child")
    print("child ended with", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))


def print_before(args: Any, ctx: TFNodeContext) -> None:
    """Says that it ran."""
    print("ran with", len(args))


def leave_a_thread(args: float, ctx: TFNodeContext) -> None:
    """Returns, and leaves a thread that keeps the process for so many seconds."""

    def linger() -> None:
        threading.Event().wait(args)

    threading.Thread(target=linger).start()


def leave_many_grandchildren(args: int, ctx: TFNodeContext) -> None:
    """Starts daemonised processes that end at once, and stays."""
    for _ in range(args):
        subprocess.run(["sh", "-c", "setsid sh -c 'exec sleep 0' & :"], check=True)
    print("all were started")
    threading.Event().wait()
