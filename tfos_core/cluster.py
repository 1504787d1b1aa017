"""A TensorFlow cluster on Spark's executors: start, feed, shut down.

    from tfos_core import TFCluster

    cluster = TFCluster.run(sc, main_fun, args, num_executors=2, num_ps=0, input_mode=TFCluster.InputMode.SPARK)
    cluster.train(rdd, num_epochs=1)
    cluster.shutdown()

The names are those of the 2022 API. What differs from it is in docs/differences.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tfos_core.cluster_report import ClusterReport
from tfos_core.errors import ConfigError
from tfos_core.gpu_request import asked_gpus
from tfos_core.launch import make_payload
from tfos_core.options import ClusterOptions, NodeCache
from tfos_core.streaming.cluster import TFCluster
from tfos_core.topology import ClusterPlan, InputMode

if TYPE_CHECKING:
    from pyspark import SparkContext

__all__ = ("ClusterOptions", "ClusterReport", "InputMode", "NodeCache", "TFCluster", "run")


def run(  # noqa: PLR0913 - the signature of the 2022 API
    sc: SparkContext,
    map_fun: Callable[[Any, Any], Any],
    tf_args: Any,
    num_executors: int,
    num_ps: int = 0,
    tensorboard: bool = False,
    input_mode: InputMode = InputMode.TENSORFLOW,
    log_dir: str | None = None,
    driver_ps_nodes: bool = False,
    master_node: str | None = None,
    reservation_timeout: float = 600,
    queues: Sequence[str] = ("input", "output", "error"),
    eval_node: bool = False,
    release_port: bool = True,
    *,
    options: ClusterOptions | None = None,
) -> TFCluster:
    """Start a cluster: one node per executor, each running `map_fun(tf_args, ctx)` in a process of its own.

    Args:
        map_fun: the user's function; it travels with Spark's cloudpickle.
        tf_args: its first argument; a list also becomes `sys.argv` of the node, as in 2022.
        num_executors: nodes in all, those of other roles and those on the driver included.
        num_ps: parameter servers among them.
        input_mode: `InputMode.SPARK` feeds rows through `train`; with `InputMode.TENSORFLOW` nodes read for themselves.
        tensorboard: run TensorBoard beside the chief, the master or worker 0; see `options.tensorboard`.
        log_dir: what TensorBoard shows; `ctx.log_dir` is the node's own folder below it. With None it is a folder of the executor
            when TensorBoard runs or `options.on_file` is set, and `ctx.log_dir` is None otherwise.
        driver_ps_nodes: the parameter servers run beside the driver and take no executor; needs `InputMode.TENSORFLOW`.
        master_node: `chief`, `master` or None.
        reservation_timeout: seconds until every node must have registered.
        queues: accepted for programs of 2022; the feed has the names `input` and `output` and no queues.
        eval_node: one of the nodes is an evaluator.
        release_port: accepted for programs of 2022: the node's port stays reserved either way until `ctx.release_port()`.
        options: what the 2022 API did not have.

    Raises:
        ConfigError: arguments or Spark settings that can not work, or a function that can not be pickled.
        TopologyError: the roles do not add up.
        ReservationTimeoutError: executors or nodes are missing; names their roles.
        GpuError: a host has fewer GPUs than its nodes were promised.
        NodeFailedError, NodeLostError: a node failed while the others started.
        InterruptedRunError: cancelled through `options.cancellation`.
    """
    options = options or ClusterOptions()
    unknown = sorted(set(queues) - {"input", "output", "error", "control"})
    if unknown:
        raise ConfigError(f"queues names {', '.join(unknown)}, but the feed has 'input' and 'output' only")
    if tensorboard:
        options = replace(options, tensorboard=replace(options.tensorboard, enabled=True))
    input_mode = InputMode(input_mode)
    if driver_ps_nodes and input_mode is InputMode.SPARK:
        raise ConfigError(
            "driver_ps_nodes needs InputMode.TENSORFLOW, as in 2022", "Drop driver_ps_nodes, so that ps take executors."
        )
    if eval_node and input_mode is InputMode.SPARK:
        raise ConfigError(
            "eval_node needs InputMode.TENSORFLOW: an evaluator reads its own data", "Drop eval_node, or the input mode."
        )
    if options.cache is not None and input_mode is InputMode.TENSORFLOW:
        raise ConfigError("options.cache keeps rows that Spark feeds, and with InputMode.TENSORFLOW it feeds none", "Leave it out.")
    plan = ClusterPlan.build(
        num_executors, num_ps=num_ps, master_node=master_node, eval_node=eval_node, driver_ps_nodes=driver_ps_nodes
    )
    options = replace(options, gpus=asked_gpus(options.gpus, tf_args))
    cluster = TFCluster(sc, plan, input_mode, options)
    cluster._start(make_payload(map_fun, tf_args), log_dir=log_dir, timeout=reservation_timeout, release_port=release_port)
    return cluster
