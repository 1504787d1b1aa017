"""What can be chosen about TensorBoard, which node runs it, and where event files lie on a node; pure."""

from __future__ import annotations

import posixpath
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from tfos_core.paths import has_scheme, local_path
from tfos_core.topology import ClusterPlan, NodeSlot, Role

__all__ = ("FileSink", "TensorBoardOptions", "board_node", "is_out_of_reach", "log_base", "node_folder")

#: The file systems of TensorFlow 2.21.
_WITHIN_REACH = ("file:", "gs://", "ram://")
#: Called with (node, path below the node's log folder, offset, data), from one thread. An offset of 0 begins the file anew.
FileSink = Callable[[str, str, int, bytes], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorBoardOptions:
    """One cluster's TensorBoard.

    Attributes:
        enabled: whether it runs.
        port: 0 takes `TENSORBOARD_PORT` of the node's environment, or else a free one.
        bind: the node's own address, or loopback. TensorBoard has no login.
        keep_secs: seconds that `shutdown` keeps it up after a good end.
        collect: whether a run that has a record collects event files in it.
    """

    enabled: bool = False
    port: int = 0
    bind: Literal["node", "loopback"] = "node"
    keep_secs: float = 0
    collect: bool = True


def board_node(plan: ClusterPlan) -> str:
    """The node that runs TensorBoard: chief or master, or worker 0 when there is neither."""
    leading = [slot for slot in plan.slots if slot.role in (Role.CHIEF, Role.MASTER)]
    return (leading or [slot for slot in plan.slots if slot.role is Role.WORKER])[0].name


def is_out_of_reach(log_dir: str | None) -> bool:
    """Whether TensorFlow can not write there itself, so that nodes write to their own disks and files are copied."""
    return log_dir is not None and has_scheme(log_dir) and not log_dir.startswith(_WITHIN_REACH)


def log_base(log_dir: str | None, *, working_dir: str, generation: str) -> str:
    """The folder or URL that TensorBoard shows: as chosen, or one that no other cluster of this executor has."""
    if log_dir is None or is_out_of_reach(log_dir):
        return posixpath.join(working_dir, f"tfos-tensorboard-{generation}")
    if has_scheme(log_dir) and not log_dir.startswith("file:"):
        return log_dir
    return posixpath.join(working_dir, local_path(log_dir))


def node_folder(slot: NodeSlot) -> str:
    """`worker-0`: a node's own folder below the base, so that nodes which share the base do not mix their files."""
    return f"{slot.role}-{slot.index}"
