"""Nodes that run beside the driver: parameter servers that take no executor (`driver_ps_nodes`)."""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from tfos_core.errors import ConfigError, NodeFailedError, TfosError
from tfos_core.link import Link
from tfos_core.node import follow_node, start_node
from tfos_core.node_config import ClusterConfig, NodeConfig
from tfos_core.topology import NodeSlot

__all__ = ("DriverNodes",)

logger = logging.getLogger(__name__)


class DriverNodes:
    """Starts the same supervisors as node tasks do; each ends when the driver stops it or ends, because both hold a link.

    Args:
        folder: where every node gets a working folder of its own; belongs to the application and goes with it.
        on_failure: called, from a thread of this class, when a node could not start or failed.
    """

    def __init__(
        self,
        slots: Sequence[NodeSlot],
        config: ClusterConfig,
        payload: bytes,
        folder: Path,
        *,
        on_failure: Callable[[TfosError], None],
    ) -> None:
        self._slots = tuple(slots)
        self._config = config
        self._payload = payload
        self._folder = folder
        self._on_failure = on_failure
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        """Start every node.

        Raises:
            ConfigError: a supervisor can not be started.
        """
        for slot in self._slots:
            config = self._configure(slot)
            link = start_node(config, self._payload)
            thread = threading.Thread(target=self._follow, args=(link, config), name=f"tfos-{slot.name}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def stop(self, timeout: float) -> None:
        """Wait until all have ended, at most `timeout` seconds; they were told through the control channel."""
        deadline = time.monotonic() + timeout
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
            if thread.is_alive():
                logger.warning("%s on the driver did not end within %g s", thread.name, timeout)

    def _configure(self, slot: NodeSlot) -> NodeConfig:
        working_dir = self._folder / f"tfos-{self._config.generation}-{slot.role}-{slot.index}"
        try:
            working_dir.mkdir(mode=0o700)
        except OSError as exc:
            raise ConfigError(f"{slot.name} on the driver gets no working folder: {exc}", "Look at spark.local.dir.") from exc
        return NodeConfig(
            cluster=self._config,
            slot=slot,
            # There is no executor to end with: the link and the control channel end with the driver's process.
            jvm_pid=0,
            jvm_started=0,
            working_dir=str(working_dir),
            python=sys.executable,
            # The node works in another folder, and an interactive driver has an empty entry for its own.
            python_path=os.pathsep.join(str(Path(path).absolute()) for path in sys.path),
        )

    def _follow(self, link: Link, config: NodeConfig) -> None:
        try:
            follow_node(link, config)
        except NodeFailedError as exc:
            self._on_failure(exc)
        finally:
            link.close()
