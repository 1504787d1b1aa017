"""What `cluster.run` takes beyond the arguments of the 2022 API."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from tfos_core import events
from tfos_core.cancellation import Cancellation
from tfos_core.feed.keeping import NodeCache
from tfos_core.settings import COLLECT_INTERVAL_S, DEFAULT_FEED_BUDGET_BYTES
from tfos_core.tensorboard.options import FileSink, TensorBoardOptions

__all__ = ("ClusterOptions", "NodeCache", "OutputSink")

logger = logging.getLogger(__name__)

#: Called with a node's name and lines that it printed, from any thread.
OutputSink = Callable[[str, Sequence[str]], None]


class _Guarded:
    """A caller's sink whose errors are logged and end nothing."""

    def __init__(self, sink: Callable[..., None]) -> None:
        self._sink = sink

    def __call__(self, *args: Any) -> None:
        try:
            self._sink(*args)
        except Exception:
            logger.exception("%r raised when it was told news of the cluster", self._sink)


def _drop_output(node: str, lines: Sequence[str]) -> None:
    """For callers that do not collect the output of nodes."""


@dataclass(frozen=True, kw_only=True)
class ClusterOptions:
    """Settings of one cluster; every one has a default.

    Attributes:
        run_id: name of the run in marks and messages; made up when empty.
        on_event: called with every event, from any thread.
        on_output: called with what nodes print, from any thread.
        cancellation: a request on it stops whatever waits, with InterruptedRunError.
        environment: variables for the nodes' processes; nothing secret.
        secrets: variables that travel on the authenticated control channel only.
        keras: `legacy` sets TF_USE_LEGACY_KERAS=1, `keras3` removes it, None leaves the environment as it is.
        num_epochs: what `ctx.num_epochs` tells the program.
        data: what `ctx.data` tells the program: the spec's data section.
        base_dir: where relative paths of the program start (`ctx.working_dir`); the executor's working folder by default.
        feed_budget_bytes: rows waiting in a node before feeders are held back; 64 MiB by default.
        equal_steps: `as_dataset` gives all nodes the same number of whole batches; for `InputMode.SPARK`.
        cache: `train` feeds the first epoch only, and nodes keep it for the others; for `InputMode.SPARK`. None, the default:
            Spark feeds every epoch.
        restart_count: what `ctx.restart_count` tells the program: how often the job was started again.
        first_epoch: what `ctx.first_epoch` tells the program: the epoch, from 0, that the feed begins with.
        gpus: GPUs of every node that trains; None, the default, is as in 2022: `num_gpus` of the function's arguments, else those
            that Spark gives a task, else one if one is free. 0 hides all GPUs from TensorFlow.
        gpu_source: who hands them out: `spark`, `nvidia-smi`, or `auto`: Spark where it has GPUs for executors, else nvidia-smi.
        tensorboard: where and how long TensorBoard runs, if it does.
        on_file: gets the event files of all nodes while they grow, such as `tensorboard.EventFileFolder(path)`; by default they
            stay where they are.
        collect_interval_s: seconds between two looks at a node's event files; 10 by default.
    """

    run_id: str = ""
    on_event: events.EventSink = events.ignore
    on_output: OutputSink = _drop_output
    cancellation: Cancellation = field(default_factory=Cancellation)
    environment: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    keras: Literal["legacy", "keras3"] | None = None
    num_epochs: int = 1
    data: Mapping[str, Any] = field(default_factory=dict)
    base_dir: str | None = None
    feed_budget_bytes: int = DEFAULT_FEED_BUDGET_BYTES
    equal_steps: bool = False
    cache: NodeCache | None = None
    restart_count: int = 0
    first_epoch: int = 0

    def __post_init__(self) -> None:
        # They are called between steps of the cluster's own work, which an error of theirs must not skip.
        for name in ("on_event", "on_output"):
            sink = getattr(self, name)
            if not isinstance(sink, _Guarded):
                object.__setattr__(self, name, _Guarded(sink))

    gpus: int | None = None
    gpu_source: Literal["auto", "spark", "nvidia-smi"] = "auto"
    tensorboard: TensorBoardOptions = field(default_factory=TensorBoardOptions)
    on_file: FileSink | None = None
    collect_interval_s: float = COLLECT_INTERVAL_S
