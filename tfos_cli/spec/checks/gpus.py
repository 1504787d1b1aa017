"""GPUs: how many a node gets, who hands them out, and what Spark is asked for."""

from __future__ import annotations

from tfos_cli.spec.checks.finding import Case, Findings
from tfos_cli.spec.masters import MasterKind
from tfos_cli.submit.gpus import spark_gives_gpus

__all__ = ("RULES",)

EXECUTOR = "spark.executor.resource.gpu.amount"
TASK = "spark.task.resource.gpu.amount"


def amounts(case: Case) -> Findings:
    """GPUs of a node, and of a task, come out of those of its executor."""
    wanted = case.spec.gpus.per_node
    amount, task = _number(case.conf.get(EXECUTOR, "")), _number(case.conf.get(TASK, ""))
    if wanted and amount is not None and amount < wanted and case.spec.gpus.source != "nvidia-smi":
        message = f"a node needs {wanted} GPUs, and {EXECUTOR} is {amount:g}"
        yield case.conf_error("gpu-amount", EXECUTOR, message, f"Set {EXECUTOR} to {wanted}, or gpus to {amount:g}.")
    if amount and (not wanted or case.spec.gpus.source == "nvidia-smi"):
        why = f"gpus is {wanted}" if not wanted else "gpus.source is nvidia-smi"
        message = f"Spark reserves {amount:g} GPUs for every executor, and {why}, so that nodes use none of them"
        yield case.warning("gpu-unused", f"spark.conf.{EXECUTOR}", message, f"Set gpus to {amount:g}, or leave {EXECUTOR} out.")
    has = amount if amount is not None else wanted if spark_gives_gpus(case.spec, case.kind) else 0
    if task is not None and task > has:
        message = f"a task needs {task:g} GPUs, and an executor has {has:g}: no task would ever start"
        yield case.conf_error("gpu-amount", TASK, message, f"Set {EXECUTOR} to {task:g} or more, or leave {TASK} out.")
    elif task and case.spec.input_mode == "spark":
        message = f"every feed task needs {task:g} GPUs too, so that at most {has / task:.0f} run at a time on an executor"
        yield case.warning("gpu-limits-feed", f"spark.conf.{TASK}", message, f"Leave {TASK} out: only nodes need GPUs.")


def source(case: Case) -> Findings:
    """Who can hand out GPUs there."""
    gpus = case.spec.gpus
    if not gpus.per_node:
        return
    if gpus.source == "nvidia-smi" and case.kind is MasterKind.KUBERNETES:
        message = "a pod may use only the GPUs that Spark asked for, whatever nvidia-smi shows"
        yield case.error("gpu-source", "gpus.source", message, "Set gpus.source: spark.")
    on_this_machine = case.kind in (MasterKind.EMBEDDED, MasterKind.LOCAL_CLUSTER)
    if gpus.source == "spark" and on_this_machine and EXECUTOR not in case.conf:
        message = "executors on this machine get no GPUs from Spark"
        yield case.error("gpu-source", "gpus.source", message, "Set gpus.source: nvidia-smi, or leave it out.")


def idle_gpus(case: Case) -> Findings:
    """All executors of an application are alike, also those of nodes that compute on the CPU."""
    spec = case.spec
    idle = [f"{spec.num_ps} ps"] if spec.num_ps and not spec.driver_ps_nodes else []
    idle += ["the evaluator"] if spec.eval_node else []
    if idle and spark_gives_gpus(spec, case.kind):
        message = f"Spark reserves {spec.gpus.per_node} GPUs for every executor, and {' and '.join(idle)} use none"
        fix = "Set driver_ps_nodes: true (tensorflow mode), or gpus.source: nvidia-smi where nobody else hands them out."
        yield case.warning("gpu-idle", "gpus.per_node", message, fix)


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if value == value else None


RULES = (amounts, source, idle_gpus)
