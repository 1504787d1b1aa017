"""Jobs that run the user's function on nodes: one cluster that is fed, or independent instances."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

from tfos_core.errors import TfosError
from tfos_core.options import ClusterOptions
from tfos_core.parallel import raise_first
from tfos_core.restarts import Attempt, RestartLoop, RestartPolicy
from tfos_core.shim import usercode
from tfos_core.shim.work import STOP_TIMEOUT_S, Work
from tfos_core.topology import InputMode

__all__ = ("run_instances", "shut_down_after", "start_cluster", "train")

logger = logging.getLogger(__name__)


def train(work: Work, function: Callable[..., Any], args: Any) -> None:
    """Start the cluster, feed it what the plan says, and shut it down.

    Raises:
        TfosError: whatever went wrong first.
    """
    plan, begun = work.plan, time.monotonic()
    mode = InputMode(plan.input_mode)
    data = usercode.load_fed_data(work.spark, plan.data, args) if mode is InputMode.SPARK and plan.data is not None else None
    work.cancellation.check()
    work.progress.mark("load_s", begun)
    loop = RestartLoop(
        RestartPolicy(max_restarts=plan.max_restarts),
        cancellation=work.cancellation,
        emit=work.emit,
        on_restart=work.progress.restarted,
    )
    loop.run(lambda attempt: _train_once(work, function, args, data, attempt))


def _train_once(work: Work, function: Callable[..., Any], args: Any, data: Any, attempt: Attempt) -> None:
    plan = work.plan
    cluster = start_cluster(work, function, args, options=attempt.options(work.options))
    try:
        if data is not None:
            cluster.train(data, plan.num_epochs, plan.feed_timeout, final=True, first_epoch=attempt.first_epoch)
    except (Exception, KeyboardInterrupt) as exc:
        shut_down_after(cluster, exc)
        raise
    finally:
        attempt.report = cluster.report()
        work.progress.collect(attempt.report)
    begun = time.monotonic()
    try:
        cluster.shutdown(grace_secs=plan.grace_secs, timeout=plan.shutdown_timeout)
    finally:
        work.progress.mark("finish_s", begun)
        attempt.report = cluster.report()
        work.progress.collect(attempt.report)


def start_cluster(work: Work, function: Callable[..., Any], args: Any, *, options: ClusterOptions | None = None) -> Any:
    """The cluster of the plan, every node started; `options` other than those of the job."""
    plan = work.plan
    return work.engine.run_cluster(
        work.spark.sparkContext,
        function,
        args,
        plan.num_nodes,
        plan.num_ps,
        tensorboard=plan.tensorboard.enabled,
        input_mode=InputMode(plan.input_mode),
        log_dir=plan.log_dir,
        driver_ps_nodes=plan.driver_ps_nodes,
        master_node=plan.master_node,
        reservation_timeout=plan.reservation_timeout,
        eval_node=plan.eval_node,
        release_port=plan.release_port,
        options=options or work.options,
    )


def shut_down_after(cluster: Any, error: BaseException) -> None:
    """End the nodes after a failed feed; what this finds matters only when the feed's own error explains nothing."""
    try:
        cluster.shutdown(grace_secs=0, timeout=STOP_TIMEOUT_S)
    except TfosError as found:
        if not isinstance(error, TfosError):
            raise found from error
    except Exception:
        logger.warning("the cluster did not shut down cleanly", exc_info=True)


def run_instances(work: Work, function: Callable[..., Any], args: Any) -> None:
    """Run the function on independent instances.

    Raises:
        TfosError: the first failure of an instance.
    """
    plan, begun = work.plan, time.monotonic()
    results = work.engine.run_parallel(
        work.spark.sparkContext,
        function,
        args,
        plan.num_nodes,
        check=False,
        timeout=plan.shutdown_timeout,
        log_dir=plan.log_dir,
        options=work.options,
    )
    work.progress.mark("instances_s", begun)
    work.progress.collect_instances(results)
    raise_first(results, plan.run_id)
