"""Where the feed tasks of an executor find its node: a private folder with a socket and a descriptor; standard library only.

The folder's name is a hash of SPARK_LOCAL_DIRS, which Spark makes unique per executor and hands to every Python worker. It lies in
`${TMPDIR:-/tmp}`, not in the executor's folder: the path of a Unix socket has at most 107 bytes, and YARN's folders are longer.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import socket
import stat
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from tfos_core.errors import FeedError
from tfos_core.json_text import parse_json
from tfos_core.private_files import bind_private, write_private
from tfos_core.processes import pid_namespace

__all__ = ("Descriptor", "create_folder", "executor_folder", "listen", "process_start_time", "remove_folder", "sweep")

DESCRIPTOR = "node.json"
BACKLOG = 512
_NAME = re.compile(r"[0-9a-f]{16}")
# A folder without a descriptor may belong to a node that is just starting.
_STARTING_S = 900.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Descriptor:
    """Which node serves an executor.

    `supervisor_started` tells its pid from a recycled one (0 when the platform can not say), `pid_namespace` from that of another
    process in another container (empty when there are no such things).
    """

    generation: str
    node: str
    socket: str
    progress: str
    supervisor_pid: int
    supervisor_started: int
    pid_namespace: str = ""

    def write(self, folder: Path) -> None:
        """Put the descriptor into its folder, whole or not at all."""
        write_private(folder / DESCRIPTOR, json.dumps(asdict(self)))

    @classmethod
    def read(cls, folder: Path) -> Descriptor:
        """Read the descriptor of a folder that only this user can have written.

        Raises:
            FeedError: no node serves this executor, or the folder is not ours alone.
        """
        try:
            _check_private(folder)
            data = parse_json((folder / DESCRIPTOR).read_text(encoding="utf-8"))
            return cls(**{field.name: data[field.name] for field in fields(cls)})
        except FileNotFoundError as exc:
            raise FeedError(
                f"this executor on {socket.gethostname()} has no node that takes rows",
                "Use as many executors as nodes (spark.cores.max = executors * cores), without dynamic allocation.",
            ) from exc
        except (OSError, ValueError, KeyError, TypeError) as exc:
            raise FeedError(f"the descriptor of the node in {folder} can not be read: {exc}") from exc

    def is_alive(self) -> bool:
        """Whether the supervisor that wrote it still runs; taken to be so where nobody can look, from another container."""
        if self.pid_namespace not in ("", pid_namespace("self")):
            return True
        try:
            os.kill(self.supervisor_pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            return True
        if _stat_fields(self.supervisor_pid)[:1] == ["Z"]:
            return False  # it has ended, and nobody has asked for its exit code yet
        return self.supervisor_started in (0, process_start_time(self.supervisor_pid))


def executor_folder(environ: Mapping[str, str]) -> Path:
    """The folder of the executor that this process belongs to; not created here.

    Raises:
        FeedError: the process was not started by a Spark executor.
    """
    local_dirs = environ.get("SPARK_LOCAL_DIRS")
    if not local_dirs:
        raise FeedError("SPARK_LOCAL_DIRS is not set, so this process does not belong to a Spark executor")
    name = hashlib.sha256(local_dirs.encode("utf-8", "surrogateescape")).hexdigest()[:16]
    return _user_folder(environ) / name


def create_folder(environ: Mapping[str, str]) -> Path:
    """Make the executor's folder, empty, readable by this user only.

    Raises:
        FeedError: somebody else owns a folder on the way.
    """
    folder = executor_folder(environ)
    for path in (folder.parent, folder):
        with contextlib.suppress(FileExistsError):
            path.mkdir(mode=0o700)
        _check_private(path)
    for entry in folder.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry, ignore_errors=True)
        else:
            entry.unlink(missing_ok=True)
    return folder


def listen(folder: Path) -> socket.socket:
    """A listening Unix socket `node.sock` in the folder, for the TensorFlow process to inherit.

    Raises:
        FeedError: the path is too long for a Unix socket.
    """
    path = folder / "node.sock"
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        bind_private(listener, path)
        listener.listen(BACKLOG)
    except OSError as exc:
        listener.close()
        raise FeedError(f"the feed socket {path} can not be made: {exc}", "Set TMPDIR to a shorter path on the executors.") from exc
    return listener


def remove_folder(folder: Path) -> None:
    """Remove an executor's folder and, when it was the last one, the user's."""
    shutil.rmtree(folder, ignore_errors=True)
    with contextlib.suppress(OSError):
        folder.parent.rmdir()


def sweep(environ: Mapping[str, str]) -> tuple[Path, ...]:
    """Remove the folders of nodes whose supervisor is gone, on this host and of this user; what was removed."""
    parent = _user_folder(environ)
    removed = []
    with contextlib.suppress(OSError):
        for folder in sorted(parent.iterdir()):
            if _NAME.fullmatch(folder.name) and _is_stale(folder):
                shutil.rmtree(folder, ignore_errors=True)
                removed.append(folder)
    return tuple(removed)


def process_start_time(pid: int) -> int:
    """When a process started, in clock ticks since the boot; 0 when unknown."""
    try:
        return int(_stat_fields(pid)[19])
    except (ValueError, IndexError):
        return 0


def _stat_fields(pid: int) -> list[str]:
    """What the kernel says of a process, from its state on; empty when it is not there, or not on this platform."""
    try:
        # The name, in parentheses, may hold spaces.
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return []


def _user_folder(environ: Mapping[str, str]) -> Path:
    return Path(environ.get("TMPDIR") or "/tmp") / f"tfos-{os.getuid()}"  # noqa: S108 - owner and mode are checked


def _is_stale(folder: Path) -> bool:
    try:
        return not Descriptor.read(folder).is_alive()
    except FeedError:
        try:
            return time.time() - folder.stat().st_mtime > _STARTING_S
        except OSError:
            return False


def _check_private(path: Path) -> None:
    found = path.lstat()
    mode = stat.S_IMODE(found.st_mode)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or mode & 0o077:
        raise FeedError(
            f"{path} is not a folder that only user {os.getuid()} can enter (mode {mode:o}, owner {found.st_uid})",
            "Remove it, or set TMPDIR on the executors to a folder of your own.",
        )
