"""The process that runs the user's function: `python -m tfos_core.tf_process LINK_FD`.

It is a fresh interpreter, started by the node's supervisor with the final environment (`TF_CONFIG`, devices, Keras version),
because a fork of a process that has loaded gRPC or TensorFlow hangs. It hears from the supervisor over one socket pair, ends when
that closes, and tells how the function ended.
"""

from __future__ import annotations

import contextlib
import errno
import faulthandler
import json
import os
import pickle
import socket
import sys
import threading
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfos_core.allocator import keep_freed_memory
from tfos_core.autograph import leave_legacy_keras_alone
from tfos_core.context import TFNodeContext
from tfos_core.errors import ChannelClosedError, ClusterStateError
from tfos_core.link import Link
from tfos_core.processes import die_with_parent
from tfos_core.serving import watch_join
from tfos_core.stacks import offer_stacks
from tfos_core.topology import InputMode, Role

if TYPE_CHECKING:
    from tfos_core.feed.hub import FeedHub

__all__ = ("main",)

#: Exit code that tells the supervisor "the user's function raised"; the traceback went over the link.
USER_ERROR = 1

#: How long `release_port` waits for the supervisor's answer, in seconds.
_RELEASE_TIMEOUT_S = 10.0

#: Of what is told of an error, in characters; both together fit into the buffer of a link.
_LONGEST_ERROR = 8 * 1024
_LONGEST_TRACE = 64 * 1024


class _Uplink:
    """The feed's way to the driver: the supervisor passes on whatever it gets."""

    def __init__(self, link: Link) -> None:
        self._link = link

    def send(self, message: Mapping[str, Any]) -> None:
        self._link.send(message)


class _Node:
    """The pieces of a running node process and the thread that listens to the supervisor."""

    def __init__(self, link: Link, config: Mapping[str, Any]) -> None:
        self._link = link
        self._config = config
        self._released = threading.Event()
        self.hub = self._make_hub()

    def _make_hub(self) -> FeedHub | None:
        fd = self._config["listener_fd"]
        if fd is None:
            return None
        from tfos_core.feed.hub import FeedHub

        hub = FeedHub(
            socket.socket(fileno=fd),
            node=self._config["node"],
            generation=self._config["generation"],
            uplink=_Uplink(self._link),
            budget_bytes=self._config["feed_budget_bytes"],
            progress_path=Path(self._config["progress_path"]),
            equal_steps=self._config["equal_steps"],
            nodes=sum(map(len, self._config["cluster_spec"].values())),
        )
        hub.start()
        return hub

    def listen(self) -> None:
        """Hear the supervisor until it closes the link; a node without a supervisor must not go on."""
        try:
            while True:
                message = self._link.receive()
                if message["op"] == "released":
                    self._released.set()
                elif self.hub is not None:
                    self.hub.on_message(message)
        except ChannelClosedError as exc:
            # Programs that close every descriptor close the link too; then the kernel still ends this process with its supervisor.
            if self.hub is None and isinstance(exc.__cause__, OSError) and exc.__cause__.errno == errno.EBADF:
                return
            os._exit(USER_ERROR)
        except Exception as exc:  # noqa: BLE001 - a node that hears no more would wait for rows for ever
            self._failed(exc)
            os._exit(USER_ERROR)

    def release_port(self) -> None:
        self._link.send({"op": "release_port"})
        if not self._released.wait(_RELEASE_TIMEOUT_S):
            raise ClusterStateError(f"the supervisor did not release the node's port within {_RELEASE_TIMEOUT_S:g} s")

    def context(self) -> TFNodeContext:
        config = self._config
        return TFNodeContext(
            executor_id=config["executor_id"],
            role=Role(config["role"]),
            index=config["index"],
            cluster_spec=config["cluster_spec"],
            default_fs=config["default_fs"],
            working_dir=config["working_dir"],
            mgr=self.hub,
            input_mode=InputMode(config["input_mode"]),
            num_epochs=config["num_epochs"],
            data=config["data"],
            run_id=config["run_id"],
            log_dir=config["log_dir"],
            instances=config["instances"],
            restart_count=config["restart_count"],
            first_epoch=config["first_epoch"],
            release=self.release_port,
            report=self._link.send,
        )

    def run(self, payload: bytes) -> int:
        """Call the user's function; returns the exit code of the process.

        A child that the function forked comes out here too; its end is not the node's.
        """
        watch_join(self._joined)
        leave_legacy_keras_alone()
        pid = os.getpid()
        try:
            # The payload came from the driver through Spark's own channel and two pipes of this user.
            map_fun, tf_args = pickle.loads(payload)
            if isinstance(tf_args, list):
                sys.argv = list(tf_args)
            value = map_fun(tf_args, self.context())
            if self._config["instances"]:
                self._send_result(value)
        except BaseException as exc:
            if os.getpid() != pid:
                raise
            if isinstance(exc, SystemExit):
                return self._ended_by_exit(exc)
            self._failed(exc)
            return USER_ERROR
        if os.getpid() == pid:
            self._returned()
        return 0

    def _returned(self) -> None:
        if self.hub is not None:
            self.hub.close()
        # The process ends when its threads have; the supervisor bounds that. The function may have closed the link.
        with contextlib.suppress(ChannelClosedError):
            self._link.send({"op": "returned"})

    def _send_result(self, value: object) -> None:
        """What an independent instance returns goes to the driver, where it is JSON; a socket is no place for pickles."""
        try:
            json.dumps(value)
        except (TypeError, ValueError):
            value = None
        self._link.send({"op": "node.result", "value": value})

    def _joined(self) -> None:
        self._link.send({"op": "node.joined"})

    def _ended_by_exit(self, exc: SystemExit) -> int:
        code = exc.code if isinstance(exc.code, int) else 0 if exc.code is None else 1
        if code == 0:
            self._returned()
            return 0
        said = f" ({exc.code})" if isinstance(exc.code, str) else ""
        self._failed(exc, f"sys.exit({code}) was called{said}")
        return code & 0xFF or USER_ERROR

    def _failed(self, exc: BaseException, error: str = "") -> None:
        trace = _shortened("".join(traceback.format_exception(exc)), _LONGEST_TRACE)
        _flush_output(trace)
        report = {"error": _shortened(error or _sentence(exc), _LONGEST_ERROR), "traceback": trace, "kind": type(exc).__name__}
        # The function may have closed the link's file descriptor; then the exit code has to do.
        with contextlib.suppress(ChannelClosedError):
            self._link.send({"op": "failed", **report})
        if self.hub is not None:
            self.hub.fail(report)


def main() -> None:
    """Run one node's function; the exit code is 0 when it returned."""
    faulthandler.enable()
    keep_freed_memory()
    link = Link(int(sys.argv[1]))
    config = link.receive()
    payload = link.receive_bytes()
    sys.argv = sys.argv[:1]
    die_with_parent(config["supervisor_pid"])
    offer_stacks(config["stacks_fd"])
    node = _Node(link, config)
    threading.Thread(target=node.listen, name="tfos-link", daemon=True).start()
    code = node.run(payload)
    _flush_output()
    sys.exit(code)


def _sentence(exc: BaseException) -> str:
    try:
        said = str(exc)
    except Exception:  # noqa: BLE001 - the user's own class
        said = "(its text can not be shown)"
    return f"{type(exc).__name__}: {said}".strip().rstrip(":")


def _shortened(text: str, longest: int) -> str:
    """Both ends of a text: the message of an error may hold a whole array, and the control channel limits messages."""
    half = longest // 2
    return text if len(text) <= longest else f"{text[:half]}\n... {len(text) - 2 * half} characters left out ...\n{text[-half:]}"


def _flush_output(last: str = "") -> None:
    """Write out what is printed so far, and `last`; the function may have closed or replaced the streams."""
    with contextlib.suppress(Exception):
        sys.stdout.flush()
    with contextlib.suppress(Exception):
        sys.stderr.write(last)
        sys.stderr.flush()


if __name__ == "__main__":
    main()
