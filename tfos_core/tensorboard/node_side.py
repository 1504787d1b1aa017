"""What a node's supervisor does about TensorBoard and event files. Nothing here may fail the node: problems become warnings."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tfos_core.node_config import NodeConfig
from tfos_core.paths import has_scheme
from tfos_core.tensorboard.collector import Collector
from tfos_core.tensorboard.command import hold_board_port, wanted_port
from tfos_core.tensorboard.mirror import Mirror
from tfos_core.tensorboard.process import BoardProcess

__all__ = ("NodeBoard",)


class NodeBoard:
    """One node's TensorBoard, if it runs here, and what collects or copies its event files, if something does.

    Args:
        send: to the driver; from any thread, raises nothing.
    """

    def __init__(self, config: NodeConfig, *, send: Callable[[Mapping[str, Any]], None]) -> None:
        self._config = config
        self._send = send
        self._holder: socket.socket | None = None
        self._process: BoardProcess | None = None
        self._collector: Collector | None = None
        self._mirror: Mirror | None = None
        self._warnings: list[dict[str, Any]] = []

    @property
    def pid(self) -> int | None:
        """The process of TensorBoard, None when it was not started here."""
        return None if self._process is None else self._process.pid

    @property
    def is_collecting(self) -> bool:
        """Whether event files may still have to be sent."""
        last = self._mirror or self._collector
        return last is not None and not last.is_over

    def fileno(self) -> int:
        """Readable once nothing is collected any more; only while `is_collecting`."""
        last = self._mirror or self._collector
        return -1 if last is None else last.fileno()

    def hold_port(self, environ: Mapping[str, str]) -> int | None:
        """The port that TensorBoard will have, kept from now on; None when it does not run here."""
        cluster = self._config.cluster
        if not self._config.runs_tensorboard:
            return None
        try:
            port = wanted_port(cluster.tensorboard_port, {**environ, **cluster.environment})
            self._holder = hold_board_port(port)
        except (OSError, OverflowError, ValueError) as exc:
            self._warn("tensorboard", f"TensorBoard of {self._config.name} takes a free port, because {_why(exc)}")
            self._holder = hold_board_port(0)
        return int(self._holder.getsockname()[1])

    def make_folder(self) -> None:
        """Before the program starts: its folder, and what is in it already."""
        folder = self._config.log_dir
        if folder is None or has_scheme(folder):
            return
        try:
            Path(folder).mkdir(parents=True, exist_ok=True)
        except OSError as exc:
            self._warn("tensorboard-folder", f"the log folder of {self._config.name} can not be made: {exc}")
        cluster = self._config.cluster
        if cluster.collects_files:
            name, interval = self._config.name, cluster.collect_interval_s
            self._collector = Collector(Path(folder), node=name, send=self._send, interval_s=interval)
        if self._config.mirror_dir is not None:
            name = self._config.name
            self._mirror = Mirror(Path(folder), self._config.mirror_dir, node=name, send=self._send, after=self._collector)

    def start(self, host: str) -> None:
        """Start what there is, beside the program; `host` is the address of this host that others reach."""
        for warning in self._warnings:
            self._send(warning)
        if self._collector is not None:
            self._collector.start()
        if self._mirror is not None:
            self._mirror.start()
        if self._holder is not None:
            try:
                self._process = BoardProcess(self._config, host=host, holder=self._holder, send=self._send)
            except OSError as exc:
                message = f"TensorBoard of {self._config.name} could not be started: {exc}"
                self._send({"op": "tensorboard.down", "message": message, "hint": ""})

    def on_message(self, message: Mapping[str, Any]) -> None:
        """An answer of the driver about event files."""
        if self._collector is not None:
            self._collector.on_message(message)

    def program_ended(self) -> None:
        """The program will write no more."""
        for sender in (self._collector, self._mirror):
            if sender is not None:
                sender.finish()

    def tell_left_behind(self) -> None:
        """The time is over: warn about what was not sent."""
        hint = "Set tensorboard.log_dir to a folder that outlives the executors."
        if self._collector is not None and (text := self._collector.left_behind()):
            self._send({"op": "node.warning", "id": "tensorboard-collect", "message": text, "hint": hint})
        if self._mirror is not None and (text := self._mirror.left_behind()):
            self._send({"op": "node.warning", "id": "tensorboard-mirror", "message": text, "hint": ""})

    def close(self) -> None:
        """End TensorBoard, give up what is not sent; may be called twice."""
        with contextlib.ExitStack() as stack:
            for part in (self._holder, self._collector, self._mirror, self._process):
                if part is not None:
                    stack.callback(part.close)

    def _warn(self, name: str, message: str) -> None:
        """Sent with the start: before, there is no channel or nobody who listens."""
        self._warnings.append({"op": "node.warning", "id": name, "message": message, "hint": ""})


def _why(exc: Exception) -> str:
    if isinstance(exc, OSError):
        return f"the one that was asked for can not be had: {exc.strerror or exc}"
    return str(exc)
