"""How TensorBoard is started: command line, environment and port; pure except that ports are tried."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping

from tfos_core import net
from tfos_core.node_config import NodeConfig
from tfos_core.processes import start_time
from tfos_core.settings import MARK_VARIABLE, SUPERVISOR_VARIABLE

__all__ = ("PORT_VARIABLE", "board_command", "board_environment", "hold_board_port", "wanted_port")

#: Of the 2022 system: the port to take.
PORT_VARIABLE = "TENSORBOARD_PORT"

#: New event data shows after at most so long, in seconds.
_RELOAD_S = 5


def wanted_port(chosen: int, environ: Mapping[str, str]) -> int:
    """The port that was asked for, 0 for any: the chosen one, else `TENSORBOARD_PORT`.

    Raises:
        ValueError: the variable is not a port.
    """
    value = environ.get(PORT_VARIABLE, "").strip()
    if chosen or not value:
        return chosen
    if not value.isascii() or not value.isdigit() or int(value) > 65535:
        raise ValueError(f"{PORT_VARIABLE} is {value!r}, which is no port")
    return int(value)


def hold_board_port(port: int) -> socket.socket:
    """A socket that keeps a port for TensorBoard, which shares it (`--reuse_port`); see `net.hold_port`.

    Raises:
        OSError: the port is taken.
    """
    if port:
        # Sharing would also work with another TensorBoard of this user, which already listens there.
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("0.0.0.0", port))  # noqa: S104 - nothing listens here
    return net.hold_port(port)


def board_command(python: str, *, log_base: str, host: str, port: int, title: str) -> list[str]:
    """TensorBoard of the node's own Python; the launcher ties its life to this process and then becomes it."""
    return [
        *(python, "-m", "tfos_core.tensorboard.launcher", str(os.getpid())),
        *("--logdir", log_base, "--host", host, "--port", str(port), "--reuse_port", "true"),
        *("--reload_interval", str(_RELOAD_S), "--window_title", title),
    ]


def board_environment(config: NodeConfig, base: Mapping[str, str], *, temporary: str) -> dict[str, str]:
    """The environment of the node without what would make TensorBoard part of the cluster, take a GPU, or know secrets.

    Args:
        temporary: a folder of its own, because it leaves files in TMPDIR when it is killed.
    """
    env = {name: value for name, value in base.items() if not name.startswith("PYTHON_WORKER_")}
    env |= config.cluster.environment
    env.pop("TF_CONFIG", None)
    env["PYTHONPATH"] = config.python_path
    env["TMPDIR"] = temporary
    env["CUDA_VISIBLE_DEVICES"] = "-1"
    env.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    env[MARK_VARIABLE] = f"{config.cluster.run_id}:{config.cluster.generation}:{config.name}"
    env[SUPERVISOR_VARIABLE] = f"{os.getpid()}:{start_time(os.getpid())}"
    return env
