"""Roles: do they add up, and does TensorFlow allow them in this mode."""

from __future__ import annotations

from tfos_cli.spec.checks.finding import Case, Findings
from tfos_core.errors import TopologyError

__all__ = ("RULES",)


def add_up(case: Case) -> Findings:
    """A node per executor, ps on the driver on top, and somebody who trains."""
    spec = case.spec
    try:
        spec.cluster_plan()
    except TopologyError as exc:
        least = (0 if spec.driver_ps_nodes else spec.num_ps) + (1 if spec.eval_node else 0) + 1
        fix = f"Set num_executors to at least {least}, or ask for fewer other roles."
        yield case.error("roles-add-up", "num_executors", exc.message, fix)


def need_tensorflow_mode(case: Case) -> Findings:
    """An evaluator and ps on the driver read for themselves."""
    if case.spec.input_mode == "tensorflow" or case.spec.is_parallel:
        return
    for field, what in (("eval_node", "an evaluator"), ("driver_ps_nodes", "ps on the driver")):
        if getattr(case.spec, field):
            message = f"{what} needs input_mode: tensorflow" if field == "eval_node" else f"{what} need input_mode: tensorflow"
            yield case.error("needs-tensorflow-mode", field, message, f"Set input_mode: tensorflow, or {field}: false.")


def instances_have_no_cluster(case: Case) -> Findings:
    """Instances of a parallel job know nothing of each other, and nobody feeds them."""
    spec = case.spec
    if not spec.is_parallel:
        return
    asked = {
        "num_ps": spec.num_ps > 0,
        "eval_node": spec.eval_node,
        "driver_ps_nodes": spec.driver_ps_nodes,
        "equal_steps": spec.equal_steps,
        "restart.max_restarts": spec.restart.max_restarts > 0,
        "stream": spec.stream is not None,
        "data.source": spec.data is not None and spec.data.source is not None,
        "data.transform": spec.data is not None and spec.data.transform is not None,
        "tensorboard.enabled": spec.tensorboard.enabled,
        "input_mode": spec.input_mode == "spark" and case.resolved.provenance.get("input_mode", "default") != "default",
    }
    for field in (field for field, is_set in asked.items() if is_set):
        message = f"{field} is about one cluster, and mode: parallel starts independent instances that are not fed"
        yield case.error("parallel-has-no-cluster", field, message, f"Leave {field} out, or use mode: cluster.")


def driver_ps_without_ps(case: Case) -> Findings:
    """`driver_ps_nodes` alone does nothing."""
    if case.spec.driver_ps_nodes and case.spec.num_ps == 0:
        message = "driver_ps_nodes says where ps run, but num_ps is 0"
        yield case.warning(
            "driver-ps-without-ps", "driver_ps_nodes", message, "Set num_ps to 1 or more, or leave driver_ps_nodes out."
        )


def fed_cluster_with_ps(case: Case) -> Findings:
    """A coordinator's dataset lives in the chief, so Spark can not feed its workers."""
    if case.spec.input_mode == "spark" and case.spec.num_ps > 0 and not case.spec.is_parallel and not _builds_graphs(case):
        yield case.warning(
            "ps-in-spark-mode",
            "num_ps",
            "with ps, Spark's rows reach between-graph training (tf.compat.v1) only: ParameterServerStrategy reads on the chief",
            "Use input_mode: tensorflow for ParameterServerStrategy; leave this for programs that build a graph per worker.",
        )


def _builds_graphs(case: Case) -> bool:
    """Whether the program's file has what every program for between-graph training has."""
    file, _, _ = (case.spec.entrypoint or "").rpartition(":")
    try:
        return file.endswith(".py") and "replica_device_setter" in case.file(file).read_text(encoding="utf-8")
    except (OSError, ValueError):
        return False


def master_role(case: Case) -> Findings:
    """MultiWorkerMirroredStrategy does not know the role."""
    if case.spec.master_node == "master":
        yield case.warning(
            "master-role",
            "master_node",
            "MultiWorkerMirroredStrategy refuses the role master with 'Disallowed task type'",
            "Set master_node: chief, unless the program was written for tf.compat.v1.",
        )


def keras_of_many_nodes(case: Case) -> Findings:
    """`model.fit` of Keras 3 fails under distributed strategies."""
    choice = case.resolved.keras
    if case.spec.is_parallel or case.resolved.model_inference is not None:
        return
    if case.spec.keras == "auto" and choice.keras == "keras3" and case.spec.num_nodes > 1:
        yield case.warning(
            "keras3-on-many-nodes",
            "keras",
            f"nodes get Keras 3 ({choice.reason}), with which model.fit fails under MultiWorkerMirroredStrategy",
            "Install tf_keras of TensorFlow's minor version, or set keras: keras3 for a program with its own training loop.",
        )


RULES = (
    add_up,
    need_tensorflow_mode,
    instances_have_no_cluster,
    driver_ps_without_ps,
    fed_cluster_with_ps,
    master_role,
    keras_of_many_nodes,
)
