"""The Spark job that starts the nodes, and what it carries."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tfos_core import events
from tfos_core.errors import ConfigError, NodeLostError, ReservationTimeoutError, TfosError
from tfos_core.gpu_request import GpuRequest
from tfos_core.node import NodeTask
from tfos_core.node_config import ClusterConfig
from tfos_core.node_table import NodeTable
from tfos_core.options import ClusterOptions
from tfos_core.placement import Placement
from tfos_core.reservation import Server
from tfos_core.spark_errors import python_error, reason_of
from tfos_core.topology import ClusterPlan, InputMode

if TYPE_CHECKING:
    from pyspark import SparkContext

__all__ = ("NodeJob", "await_registration", "default_fs", "driver_host", "job_error", "make_payload", "new_cluster_config")

logger = logging.getLogger(__name__)

#: How often the user is told who is missing, in seconds.
_TELL_S = 5.0


def make_payload(map_fun: Callable[[Any, Any], Any], tf_args: Any) -> bytes:
    """The user's function and its arguments, pickled before anything is started.

    Raises:
        ConfigError: they can not be pickled.
    """
    from pyspark import cloudpickle

    try:
        return bytes(cloudpickle.dumps((map_fun, tf_args)))
    except Exception as exc:
        name = getattr(map_fun, "__qualname__", repr(map_fun))
        raise ConfigError(
            f"{name} can not be sent to the executors: {type(exc).__name__}: {exc}",
            "Create what can not be pickled (sessions, locks, open files, SparkContexts) inside the function, not around it.",
        ) from exc


def new_cluster_config(  # noqa: PLR0913 - called in one place
    sc: SparkContext,
    server: Server,
    options: ClusterOptions,
    *,
    generation: str,
    input_mode: InputMode,
    timeout: float,
    release_port: bool,
    log_dir: str | None,
    cores: int,
    tensorboard_node: str,
    gpus: GpuRequest,
) -> ClusterConfig:
    """What every node of a new cluster is told."""
    host, port = server.address
    threads_chosen = sc.getConf().get("spark.executorEnv.OMP_NUM_THREADS", None) is not None
    return ClusterConfig(
        run_id=options.run_id or f"cluster-{generation}",
        generation=generation,
        server_host=host,
        server_port=port,
        secret=server.secret.hex(),
        has_user_secrets=bool(options.secrets),
        input_mode=input_mode,
        reservation_timeout=timeout,
        release_port=release_port,
        environment=dict(options.environment),
        keras=options.keras,
        threads=None if threads_chosen else cores,
        default_fs=default_fs(sc),
        num_epochs=options.num_epochs,
        data=dict(options.data),
        log_dir=log_dir,
        base_dir=options.base_dir,
        feed_budget_bytes=options.feed_budget_bytes,
        tensorboard_node=tensorboard_node,
        tensorboard_port=options.tensorboard.port,
        tensorboard_bind=options.tensorboard.bind,
        collects_files=options.on_file is not None,
        collect_interval_s=options.collect_interval_s,
        gpus=gpus,
        equal_steps=options.equal_steps,
        restart_count=options.restart_count,
        first_epoch=options.first_epoch,
    )


def await_registration(
    table: NodeTable, server: Server, emit: events.EventSink, timeout: float, *, is_over: Callable[[], bool]
) -> None:
    """Wait until every node has registered or `is_over`, telling every few seconds who is missing.

    Raises:
        ReservationTimeoutError: some had not within `timeout` seconds; names them.
    """
    started = time.monotonic()
    while True:
        left = started + timeout - time.monotonic()
        if table.wait(lambda: not table.missing() or is_over(), min(left, _TELL_S)):
            return
        missing, waited = table.missing(), time.monotonic() - started
        if waited >= timeout:
            address = ":".join(map(str, server.address))
            raise ReservationTimeoutError(
                f"{len(missing)} of {table.size} nodes did not register within {timeout:g} s: {', '.join(missing)}",
                f"Look at the logs of the executors (Spark's web UI); can they reach the driver at {address}?",
                missing,
            )
        reason = "the node task has not registered yet"
        emit(events.ReservationWaiting(missing=missing, waited_s=round(waited, 1), timeout_s=timeout, reason=reason))


def driver_host(sc: SparkContext) -> str | None:
    """The address that Spark itself advertises for the driver; executors reach it already."""
    host = sc.getConf().get("spark.driver.host", None)
    return str(host).strip("[]") if host else None


class NodeJob:
    """Runs the node tasks in a thread of its own.

    Args:
        on_end: called once, from that thread, with None, with the reason why the job failed, or with what all nodes say.
        barrier: start all tasks at once or none.
    """

    def __init__(
        self,
        sc: SparkContext,
        plan: ClusterPlan,
        placement: Placement,
        config: ClusterConfig,
        payload: bytes,
        *,
        on_end: Callable[[str | TfosError | None], None],
        barrier: bool = True,
    ) -> None:
        self._sc = sc
        self._plan = plan
        self._placement = placement
        self._config = config
        self._payload = payload
        self._on_end = on_end
        self._barrier = barrier
        self._tag = f"tfos-nodes-{config.generation}"
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Submit the job."""
        from pyspark import InheritableThread

        self._thread = InheritableThread(target=self._run, name="tfos-node-job", daemon=True)
        self._thread.start()

    def stop(self, timeout: float) -> None:
        """Cancel what is left of the job and wait for its thread, at most `timeout` seconds; idempotent."""
        if self._thread is None:
            return
        if self._thread.is_alive():
            self._thread.join(1.0)
        if self._thread.is_alive():
            try:
                self._sc.cancelJobsWithTag(self._tag)
            except Exception as exc:  # noqa: BLE001 - the context may be gone, and with it the job
                logger.info("the node job could not be cancelled: %s", exc)
            self._thread.join(timeout)
        if self._thread.is_alive():
            logger.warning("the job of the node tasks did not end within %g s after it was cancelled", timeout)

    def _run(self) -> None:
        broadcast = None
        error: str | TfosError | None = None
        try:
            self._sc.addJobTag(self._tag)
            # A broadcast goes through Spark's own channel and, unlike a large closure, is a file without the secret.
            broadcast = self._sc.broadcast(self._payload)
            slots = self._plan.on_executors
            numbers = self._sc.parallelize(range(len(slots)), len(slots))
            if self._placement.profile is not None:
                numbers = numbers.withResources(self._placement.profile)
            task = NodeTask(cluster=self._config, slots=slots, payload=broadcast, barrier=self._barrier)
            ends = (numbers.barrier() if self._barrier else numbers).mapPartitions(task).collect()
            error = next((end.error for end in ends if end.error is not None), None)
        except Exception as exc:  # noqa: BLE001 - whatever Spark raises is reported to the cluster
            error = reason_of(exc)
        self._on_end(error)
        if broadcast is not None:
            try:
                broadcast.destroy()
            except Exception as exc:  # noqa: BLE001 - the context may have been stopped meanwhile
                logger.debug("the broadcast of the function was not destroyed: %s", exc)


def job_error(error: str | TfosError) -> TfosError:
    """What `NodeJob` ended with, as an exception."""
    if isinstance(error, TfosError):
        return error
    return python_error(error) or NodeLostError(f"Spark could not run the node tasks: {error}", "Look at the driver's log.")


def default_fs(sc: SparkContext) -> str:
    """Hadoop's default file system on the driver; `file://` when it is local."""
    name = str(sc._jsc.hadoopConfiguration().get("fs.defaultFS") or "file://")
    return "file://" if name.startswith("file:") else name.rstrip("/")
