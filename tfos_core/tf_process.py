"""The process that runs the user's function: `python -m tfos_core.tf_process LINK_FD`.

It is a fresh interpreter, started by the node's supervisor with the final environment (`TF_CONFIG`, devices, Keras version),
because a fork of a process that has loaded gRPC or TensorFlow hangs. It hears from the supervisor over one socket pair, ends when
that closes, and tells how the function ended.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import pickle
import socket
import sys
import threading
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfos_core.context import TFNodeContext
from tfos_core.errors import ChannelClosedError, ClusterStateError
from tfos_core.link import Link
from tfos_core.processes import die_with_parent
from tfos_core.serving import watch_join
from tfos_core.topology import InputMode, Role

if TYPE_CHECKING:
    from tfos_core.feed.hub import FeedHub

__all__ = ("main",)

#: Exit code that tells the supervisor "the user's function raised"; the traceback went over the link.
USER_ERROR = 1

#: How long `release_port` waits for the supervisor's answer, in seconds.
_RELEASE_TIMEOUT_S = 10.0


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
        except ChannelClosedError:
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
            release=self.release_port,
            report=self._link.send,
        )

    def run(self, payload: bytes) -> int:
        """Call the user's function; returns the exit code of the process."""
        watch_join(self._joined)
        try:
            # The payload came from the driver through Spark's own channel and two pipes of this user.
            map_fun, tf_args = pickle.loads(payload)
            if isinstance(tf_args, list):
                sys.argv = list(tf_args)
            map_fun(tf_args, self.context())
        except SystemExit as exc:
            return self._ended_by_exit(exc)
        except BaseException as exc:  # noqa: BLE001 - whatever the user's function raises is reported and ends the process
            self._failed(f"{type(exc).__name__}: {exc}".strip().rstrip(":"), traceback.format_exc(), type(exc).__name__)
            return USER_ERROR
        if self.hub is not None:
            self.hub.close()
        return 0

    def _joined(self) -> None:
        self._link.send({"op": "node.joined"})

    def _ended_by_exit(self, exc: SystemExit) -> int:
        code = exc.code if isinstance(exc.code, int) else 0 if exc.code is None else 1
        if code == 0:
            if self.hub is not None:
                self.hub.close()
            return 0
        said = f" ({exc.code})" if isinstance(exc.code, str) else ""
        self._failed(f"sys.exit({code}) was called{said}", traceback.format_exc(), "SystemExit")
        return code & 0xFF or USER_ERROR

    def _failed(self, error: str, trace: str, kind: str) -> None:
        sys.stdout.flush()
        sys.stderr.write(trace)
        sys.stderr.flush()
        report = {"error": error, "traceback": trace, "kind": kind}
        self._link.send({"op": "failed", **report})
        if self.hub is not None:
            self.hub.fail(report)


def main() -> None:
    """Run one node's function; the exit code is 0 when it returned."""
    faulthandler.enable()
    link = Link(int(sys.argv[1]))
    config = link.receive()
    payload = link.receive_bytes()
    with contextlib.suppress(ValueError):
        sys.argv = [sys.argv[0]]
    die_with_parent(config["supervisor_pid"])
    node = _Node(link, config)
    threading.Thread(target=node.listen, name="tfos-link", daemon=True).start()
    code = node.run(payload)
    sys.stdout.flush()
    sys.stderr.flush()
    link.send({"op": "returned", "code": code})
    sys.exit(code)


if __name__ == "__main__":
    main()
