"""Names of environment variables and the fixed numbers of the engine, in one place."""

from __future__ import annotations

from typing import Final

__all__ = (
    "COLLECT_INTERVAL_S",
    "COLLECT_LAST_S",
    "COLLECT_REST_S",
    "DEFAULT_FEED_BUDGET_BYTES",
    "EXIT_LIMIT_S",
    "EXIT_WARN_S",
    "KEPT_OUTPUT_LINES",
    "MARK_VARIABLE",
    "OUTPUT_LINES_PER_SECOND",
    "PLACEMENT_WAIT_S",
    "SERVER_HOST_VARIABLE",
    "SERVER_PORT_VARIABLE",
    "STOP_GRACE_S",
    "STOP_TIMEOUT_S",
    "SUPERVISOR_VARIABLE",
)

#: Address and port (or range, `9000-9010`) of the reservation server, as in the 2022 system.
SERVER_HOST_VARIABLE: Final = "TFOS_SERVER_HOST"
SERVER_PORT_VARIABLE: Final = "TFOS_SERVER_PORT"

#: Every process of a node carries `<run>:<generation>:<node>` here ...
MARK_VARIABLE: Final = "TFOS_NODE"
#: ... and `<pid>:<start time>` of its supervisor here, so that the next task on the host can tell orphans from the living.
SUPERVISOR_VARIABLE: Final = "TFOS_SUPERVISOR"

#: Rows waiting in a node, in bytes, before feeders are held back.
DEFAULT_FEED_BUDGET_BYTES: Final = 64 * 1024 * 1024

#: Longest wait for executors before a cluster that does not fit is refused; less when `reservation_timeout` is less.
PLACEMENT_WAIT_S: Final = 30.0

#: From SIGTERM to SIGKILL when a node is stopped.
STOP_GRACE_S: Final = 2.0

#: A process whose function has returned and that does not end, because threads of it still run: when that is a warning, and when
#: the node is ended as failed, in seconds.
EXIT_WARN_S: Final = 30.0
EXIT_LIMIT_S: Final = 600.0

#: What a job gets to shut its cluster down after it was told to stop, `grace_secs` not counted.
STOP_TIMEOUT_S: Final = 30.0

#: Between two looks at what is new in a node's event files.
COLLECT_INTERVAL_S: Final = 10.0
#: What a node gets to send the rest of them after its program has ended, and after it was told to go.
COLLECT_REST_S: Final = 60.0
COLLECT_LAST_S: Final = 5.0

#: Lines of a node's output that an error shows.
KEPT_OUTPUT_LINES: Final = 40
#: Lines of a node's output that travel to the driver; the rest is counted and stays in the executor's folder.
OUTPUT_LINES_PER_SECOND: Final = 500
