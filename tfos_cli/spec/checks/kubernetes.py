"""Kubernetes: images, how files and secrets reach a driver that runs in a pod, and who reaches a driver that does not."""

from __future__ import annotations

import re
from pathlib import Path

from tfos_cli.spec.checks.finding import Case, Findings
from tfos_cli.spec.checks.storage import missing_package
from tfos_cli.spec.masters import MasterKind
from tfos_cli.spec.values import is_secret_name

__all__ = ("RULES", "SECRET_REFERENCE", "names_a_secret")

IMAGE = "spark.kubernetes.container.image"
UPLOAD_PATH = "spark.kubernetes.file.upload.path"
SECRET_REFERENCE = "spark.kubernetes.driver.secretKeyRef."  # noqa: S105 - the beginning of a property's name
#: Kubernetes sets it in every pod.
IN_A_POD = "KUBERNETES_SERVICE_HOST"
_DEFAULT_LINE = re.compile(r"\s*(spark\.[^\s=:]+)(?:\s*[=:]\s*|\s+)(\S.*?)\s*\Z")
#: Names of Kubernetes' own secrets, or of files: no secrets themselves.
_REFERENCES = re.compile(r"spark\.kubernetes\.(driver|executor)\.(secretKeyRef|secrets)\.|spark\..*(\.file|\.path|File)\Z")


def images(case: Case) -> Findings:
    """Every pod has an image, and Spark has no default for it."""
    if case.kind is not MasterKind.KUBERNETES:
        return
    pods = ("executor", "driver") if case.spec.spark.deploy_mode == "cluster" else ("executor",)
    missing = [pod for pod in pods if not _set(case, IMAGE) and not _set(case, f"spark.kubernetes.{pod}.container.image")]
    if missing:
        message = f"{IMAGE} is not set, and the {' and '.join(missing)} need an image"
        fix = "Name one with Spark's version, Python and TensorFlow in it (docs/kubernetes.md)."
        yield case.conf_error("image-missing", IMAGE, message, fix)


def upload_path(case: Case) -> Findings:
    """The driver's pod has none of this machine's files: Spark copies them to where the pod can read them."""
    if not _driver_in_a_pod(case):
        return
    path = case.conf.get(UPLOAD_PATH)
    if not path:
        message = f"the engine and the program travel with the job, and {UPLOAD_PATH} does not say where pods find them"
        yield case.conf_error(
            "upload-path", UPLOAD_PATH, message, "Name a folder that is read here and in pods, as s3a://... or hdfs://..."
        )
        return
    if path.startswith(("file:", "local:")):
        message = f"{path} is on this machine, and the driver reads it in a pod"
        fix = "Use s3a:// or hdfs://, or ignore this if a volume is mounted there in the driver and the executors."
        yield case.warning("upload-path", f"spark.conf.{UPLOAD_PATH}", message, fix)
    module, package = missing_package(path)
    if module:
        message = f"the record of the run is read at {path}, and the Python module {module} is not installed here"
        yield case.warning("storage-package", f"spark.conf.{UPLOAD_PATH}", message, f"pip install '{package}'")


def secrets(case: Case) -> Findings:
    """Nothing of this machine's environment is in a pod, and what is submitted can be read by whoever lists pods."""
    if not _driver_in_a_pod(case):
        return
    for name in case.spec.environment.secrets:
        if not names_a_secret(case, name):
            message = f"the driver runs in a pod, where nothing sets the secret {name}"
            fix = f"Put it into a Secret of Kubernetes, and set spark.conf.{SECRET_REFERENCE}{name} to NAME:KEY."
            yield case.error("secret-in-a-pod", "environment.secrets", message, fix)
    for key in case.conf:
        if is_secret_name(key) and not _REFERENCES.match(key):
            message = f"{key} would be in a config map, which is no secret in Kubernetes"
            fix = "Mount a Secret, and name its file: docs/kubernetes.md."
            yield case.warning("secret-in-config-map", f"spark.conf.{key}", message, fix)


def names_a_secret(case: Case, name: str) -> bool:
    """Whether the driver's pod has a variable of this name from a Secret of Kubernetes."""
    return _driver_in_a_pod(case) and bool(_set(case, SECRET_REFERENCE + name))


def reached_by_pods(case: Case) -> Findings:
    """Executors connect to their driver, and what is outside of the cluster is mostly not reached from a pod."""
    if case.kind is not MasterKind.KUBERNETES or case.spec.spark.deploy_mode == "cluster":
        return
    if IN_A_POD not in case.environ and not _set(case, "spark.driver.host"):
        message = "the driver runs on this machine, and executors in pods have to connect to it"
        fix = "Call tfos in a pod, set spark.conf.spark.driver.host to what pods reach, or set spark.deploy_mode: cluster."
        yield case.warning("driver-outside", "spark.deploy_mode", message, fix)


def _driver_in_a_pod(case: Case) -> bool:
    return case.kind is MasterKind.KUBERNETES and case.spec.spark.deploy_mode == "cluster"


def _set(case: Case, key: str) -> str:
    """A property of the spec, or of the spark-defaults.conf that spark-submit reads; empty when neither has it."""
    return case.conf.get(key) or _default(case, key)


def _default(case: Case, key: str) -> str:
    folder = case.environ.get("SPARK_CONF_DIR") or (f"{home}/conf" if (home := case.environ.get("SPARK_HOME")) else "")
    if not folder:
        return ""
    try:
        lines = Path(folder, "spark-defaults.conf").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    found = [match[2] for line in lines if (match := _DEFAULT_LINE.match(line)) and match[1] == key]
    return found[-1] if found else ""


RULES = (images, upload_path, secrets, reached_by_pods)
