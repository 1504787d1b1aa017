"""The Spark side: masters, properties that break a cluster of nodes, cores, GPUs."""

from __future__ import annotations

from tfos_cli.spec.checks.finding import Case, Findings
from tfos_cli.spec.masters import MasterKind, local_cluster
from tfos_cli.spec.problems import did_you_mean
from tfos_cli.spec.values import memory_bytes

__all__ = ("RULES",)

TWINS = {
    "spark.app.name": "name",
    "spark.master": "spark.master",
    "spark.submit.deployMode": "spark.deploy_mode",
    "spark.executor.instances": "num_executors",
}
"""Properties that the spec has a key for, and that more than Spark depends on."""
ATTEMPTS_KEY = "spark.yarn.maxAppAttempts"
OVERRIDES = {
    "spark.executor.cores": "spark.executor_cores",
    "spark.executor.memory": "spark.executor_memory",
    "spark.driver.memory": "spark.driver_memory",
    "spark.yarn.queue": "spark.queue",
}
"""Properties that win over the spec's key, as they do in Spark."""


def known_master(case: Case) -> Findings:
    """A URL that Spark knows, and not `local[N]`."""
    master, executors, spark = case.spec.spark.master, case.spec.num_executors, case.spec.spark
    if case.kind is MasterKind.LOCAL:
        mib = memory_bytes(spark.executor_memory) >> 20
        yield case.error(
            "local-master",
            "spark.master",
            f"{master} has one executor, so one node would get every row and the others none",
            f"Leave spark.master out, or use local-cluster[{executors},{spark.executor_cores},{mib}].",
        )
    elif case.kind is MasterKind.UNKNOWN:
        hint = did_you_mean((master or "").partition(":")[0], ("spark", "yarn", "k8s", "local-cluster"))
        fix = "Use spark://HOST:PORT, yarn, k8s://URL, or leave spark.master out for executors on this machine."
        yield case.error("unknown-master", "spark.master", f"{master!r} is no Spark master", f"{hint} {fix}".strip())
    elif case.kind is MasterKind.STANDALONE and master is not None:
        for address in master.removeprefix("spark://").split(","):
            host, _, port = address.rpartition(":")
            if not host or not port.isdigit():
                yield case.error("unknown-master", "spark.master", f"{address!r} is not HOST:PORT", "Write spark://HOST:PORT.")


def deploy_mode(case: Case) -> Findings:
    """Where Spark can run a Python driver."""
    if case.spec.spark.deploy_mode != "cluster":
        return
    if case.kind in (MasterKind.EMBEDDED, MasterKind.LOCAL_CLUSTER, MasterKind.STANDALONE):
        what = "a Standalone cluster" if case.kind is MasterKind.STANDALONE else "executors on this machine"
        message = f"Spark runs no Python driver inside {what}"
        yield case.error("deploy-mode", "spark.deploy_mode", message, "Set spark.deploy_mode: client.")
    attempts = case.conf.get(ATTEMPTS_KEY, "1").strip()
    if case.kind is MasterKind.YARN and attempts != "1":
        message = f"{ATTEMPTS_KEY} is {attempts}, but a second attempt of YARN's would begin the run anew behind your back"
        yield case.conf_error("second-attempt", ATTEMPTS_KEY, message, "Leave it out, and set restart.max_restarts.")


def queue(case: Case) -> Findings:
    """Queues are YARN's."""
    if case.spec.spark.queue is not None and case.kind is not MasterKind.YARN:
        yield case.warning("queue-ignored", "spark.queue", "only YARN has queues", "Leave spark.queue out.")


def local_cluster_size(case: Case) -> Findings:
    """`local-cluster[N,C,M]` says how large executors can be."""
    sizes = local_cluster(case.spec.spark.master or "")
    if sizes is None:
        return
    heap = case.heap("executor").size
    wanted = (case.spec.num_executors, case.executor_cores or 1, (heap or 0) >> 20)
    names = ("executors", "cores for each executor", "MiB for each executor")
    for have, want, name in zip(sizes, wanted, names, strict=True):
        if have < want:
            message = f"{case.spec.spark.master} has {have} {name}, and the job needs {want}"
            fix = f"Use local-cluster[{','.join(map(str, wanted))}], or leave spark.master out."
            yield case.error("local-cluster-size", "spark.master", message, fix)


def twins(case: Case) -> Findings:
    """A property that contradicts the spec's own key."""
    for key, field in TWINS.items():
        value = case.value_of(field)
        if key in case.conf and case.conf[key] != str(value):
            given = f"{field} is {value}" if value is not None else f"{field} is not set"
            message = f"{key} is {case.conf[key]}, but {given}"
            yield case.conf_error("conf-contradicts-spec", key, message, f"Leave the property out, and set {field}.")
    for key, field in OVERRIDES.items():
        value = case.value_of(field)
        if key in case.conf and case.resolved.place_of(field) != "default" and case.conf[key] != str(value):
            message = f"{key} is {case.conf[key]}, which wins over {field}: {value}"
            yield case.warning("conf-overrides-spec", f"spark.conf.{key}", message, f"Keep one of them, best {field}.")


def fixed_executors(case: Case) -> Findings:
    """Nodes live as long as the cluster; executors may not come and go, nor tasks run twice."""
    for key, why in (
        ("spark.dynamicAllocation.enabled", "Spark would take executors away from nodes that wait"),
        ("spark.speculation", "Spark would start a second copy of a node"),
    ):
        if case.conf.get(key, "false").strip().lower() == "true":
            yield case.conf_error("fixed-executors", key, f"{key} is true, but {why}", "Leave it out; submission sets it to false.")
    key = "spark.locality.wait"
    if key in case.conf and not _is_zero(case.conf[key]):
        message = "with a locality wait Spark gives every partition to the executors that cached it, and other nodes get none"
        yield case.warning("locality-wait", f"spark.conf.{key}", message, "Leave it out; submission sets it to 0s.")


def cores(case: Case) -> Findings:
    """Slots of one executor, and of all."""
    nodes, have = case.spec.num_executors, case.executor_cores
    if have is None:
        key = "spark.executor.cores"
        message = f"{key} is {case.conf[key]!r}, expected a whole number, 1 or more"
        yield case.conf_error("executor-cores", key, message, "Leave it out, and set spark.executor_cores.")
        return
    wanted = _number(case.conf.get("spark.task.cpus", "1"))
    if wanted is not None and wanted > have:
        yield case.conf_error(
            "task-cpus",
            "spark.task.cpus",
            f"a task needs {wanted:g} cores, and an executor has {have}: no task would ever start",
            f"Set spark.executor_cores to {wanted:g} or more, or leave spark.task.cpus out.",
        )
    most = _number(case.conf.get("spark.cores.max", "inf"))
    if most is not None and most < have * nodes:
        message = f"spark.cores.max is {most:g}, and {nodes} executors of {have} cores need {have * nodes}"
        yield case.conf_error("cores-max", "spark.cores.max", message, "Leave it out; submission sets it to what the job needs.")


def authentication(case: Case) -> Findings:
    """Spark's own RPC is open without it, whatever tfos does."""
    if case.is_shared and case.conf.get("spark.authenticate", "false").strip().lower() != "true":
        yield case.warning(
            "spark-authenticate",
            "spark.conf.spark.authenticate",
            "spark.authenticate is not on in this spec: whoever reaches the cluster's ports can run code in the executors",
            "Set spark.conf.spark.authenticate to true; Standalone needs a shared secret too (docs/security.md).",
        )


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if value == value else None


def _is_zero(duration: str) -> bool:
    return not any(digit in duration for digit in "123456789")


RULES = (
    known_master,
    deploy_mode,
    queue,
    local_cluster_size,
    twins,
    fixed_executors,
    cores,
    authentication,
)
