"""A resolved spec as the exact spark-submit command: a value that a dry run prints and a run executes."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfos_cli.spec.masters import MasterKind
from tfos_cli.spec.values import is_secret_name
from tfos_cli.submit.environment_pack import shipped_environment
from tfos_cli.submit.properties import (
    LOOPBACK,
    PACKED_PYTHON,
    Location,
    cluster_kind,
    is_on_this_machine,
    local_url,
    spark_master,
    spark_properties,
)
from tfos_cli.submit.shipping import shipment_of
from tfos_core.private_files import write_private
from tfos_core.shim.redaction import has_url_password, hide_url_passwords

if TYPE_CHECKING:
    from tfos_cli.spec.loader import ResolvedSpec
    from tfos_cli.spec.model import JobSpec

__all__ = ("HIDDEN", "SparkSubmitCommand", "build_command", "write_secret_properties")

#: What is shown in place of a secret.
HIDDEN = "<hidden>"

#: Options of spark-submit that people know better than the property behind them.
_OPTIONS = {
    "spark.driver.memory": "--driver-memory",
    "spark.yarn.queue": "--queue",
    "spark.jars": "--jars",
    "spark.jars.packages": "--packages",
    "spark.files": "--files",
    "spark.archives": "--archives",
    "spark.submit.pyFiles": "--py-files",
}
#: spark-submit ignores these two without a word when the master is local-cluster (its own parser, tried).
_CLUSTER_OPTIONS = {"spark.executor.memory": "--executor-memory", "spark.executor.cores": "--executor-cores"}
_YARN_OPTIONS = {"spark.executor.instances": "--num-executors"}


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkSubmitCommand:
    """What is executed: `environment` is what is added to the caller's own.

    `secret_properties` are Spark properties whose names say that they hold a secret, or with a password in a URL. Everybody on a
    machine can read a command line, so they are written to `properties_file` (readable by the user only) before the start; it is
    None when there are none.
    """

    argv: tuple[str, ...]
    environment: Mapping[str, str]
    cwd: Path
    secret_properties: Mapping[str, str] = field(default_factory=dict, repr=False)
    properties_file: Path | None = None

    def render(self) -> str:
        """For a shell, one option a line; values of variables whose names say that they are secret are not shown."""
        head = [f"{name}={shlex.quote(_visible(name, value))}" for name, value in self.environment.items()]
        lines = [*head, *(shlex.join(words) for words in _grouped(self.argv))]
        return " \\\n  ".join([f"cd {shlex.quote(str(self.cwd))} &&", *lines])

    def to_dict(self) -> dict[str, Any]:
        """For `command.json`, without secrets."""
        environment = {name: _visible(name, value) for name, value in self.environment.items()}
        return {
            "argv": list(self.argv),
            "environment": environment,
            "cwd": str(self.cwd),
            "properties_file": str(self.properties_file) if self.properties_file else None,
            "secret_properties": sorted(self.secret_properties),
        }


def build_command(
    resolved: ResolvedSpec,
    *,
    plan_path: Path,
    run_folder: Path,
    python: str,
    spark_home: Path,
    spark_version: str | None = None,
) -> SparkSubmitCommand:
    """The command of a job. Pure: nothing is read or written.

    Args:
        plan_path: where the job plan will be.
        run_folder: where the run record will be.
        python: the interpreter of the driver, and of executors that have the same files; `sys.executable`, because a virtual
            environment is lost when its link to the real interpreter is resolved.
        spark_home: as found by `locate_spark`; for a cluster inside this machine, the private one of `link_private_home`.
        spark_version: of that Spark; None for one that can do all that tfos knows of.

    Raises:
        ConfigError: master, deploy mode or a path that can not work.
    """
    spec = resolved.spec
    shipment = shipment_of(resolved, run_folder)
    packed = shipped_environment(resolved, run_folder)
    location = Location(
        run_folder=run_folder,
        plan=plan_path,
        python=python,
        py_files=shipment.py_files,
        environment=packed,
        spark_version=spark_version,
    )
    properties = spark_properties(resolved, location)
    secret = {key: value for key, value in properties.items() if is_secret_name(key) or has_url_password(value)}
    properties_file = run_folder / "spark-secrets.conf" if secret else None
    argv = [str(spark_home / "bin" / "spark-submit"), "--master", spark_master(spec, properties)]
    # In cluster mode the name is what finds the application again, should everything else be lost.
    name = run_folder.name if spec.spark.deploy_mode == "cluster" else spec.name
    argv += ["--deploy-mode", spec.spark.deploy_mode, "--name", name]
    if properties_file is not None:
        argv += ["--properties-file", str(properties_file)]
    options = _options(spec)
    for key, value in properties.items():
        if key not in secret:
            argv += [options[key], value] if key in options else ["--conf", f"{key}={value}"]
    # In cluster mode the plan travels with the job, into the driver's working folder.
    argv += [local_url(shipment.shim), plan_path.name if spec.spark.deploy_mode == "cluster" else str(plan_path)]
    return SparkSubmitCommand(
        argv=tuple(argv),
        environment=_environment(spec, properties, python, spark_home, packed) | _packed_python(packed),
        cwd=resolved.folder,
        secret_properties=secret,
        properties_file=properties_file,
    )


def write_secret_properties(command: SparkSubmitCommand, *, spark_home: Path, environ: Mapping[str, str]) -> None:
    """Write the properties file of a command, if it has one, readable by the user only.

    Spark reads either this file or its own spark-defaults.conf, so the defaults of the installation are copied in front.
    """
    if command.properties_file is None:
        return
    folder = Path(environ.get("SPARK_CONF_DIR") or spark_home / "conf")
    defaults = folder / "spark-defaults.conf"
    text = defaults.read_text(encoding="utf-8").rstrip("\n") + "\n" if defaults.is_file() else ""
    text += "".join(f"{key}={_escaped(value)}\n" for key, value in sorted(command.secret_properties.items()))
    write_private(command.properties_file, text)


def _visible(name: str, value: str) -> str:
    return HIDDEN if is_secret_name(name) else hide_url_passwords(value, HIDDEN)


def _options(spec: JobSpec) -> Mapping[str, str]:
    """Property to option, as far as spark-submit takes the option for that cluster."""
    options = dict(_OPTIONS)
    if not is_on_this_machine(spec):
        options |= _CLUSTER_OPTIONS
    if cluster_kind(spec) is MasterKind.YARN:
        options |= _YARN_OPTIONS
    return options


def _environment(spec: JobSpec, properties: Mapping[str, str], python: str, spark_home: Path, packed: str | None) -> dict[str, str]:
    """What the process gets beside the caller's environment: the user's variables first, so that ours are never in doubt."""
    added = dict(spec.environment.vars)
    added["SPARK_HOME"] = str(spark_home)
    # Executors of Kubernetes have the Python of their image, all others the one at the same place as here.
    added.setdefault("PYSPARK_PYTHON", "python3" if cluster_kind(spec) is MasterKind.KUBERNETES else python)
    if spec.spark.deploy_mode == "client":
        added["PYSPARK_DRIVER_PYTHON"] = python
    elif cluster_kind(spec) is MasterKind.KUBERNETES:
        # Spark names both in the driver's pod: one of the caller's shell would be of this machine.
        added.setdefault("PYSPARK_DRIVER_PYTHON", added["PYSPARK_PYTHON"] if packed is None else PACKED_PYTHON)
    if is_on_this_machine(spec):
        added["SPARK_LOCAL_IP"] = LOOPBACK
        # A SPARK_LOCAL_DIRS of the shell would win over the property, and what is there stays when the driver is killed.
        added.setdefault("SPARK_LOCAL_DIRS", properties["spark.local.dir"])
    return added


def _packed_python(packed: str | None) -> dict[str, str]:
    """The Python of executors that get an environment; a driver on this machine keeps its own."""
    return {} if packed is None else {"PYSPARK_PYTHON": PACKED_PYTHON}


def _grouped(argv: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """The program, then each option with its value, then what follows the options."""
    yield argv[:1]
    position = 1
    while position < len(argv):
        length = 2 if argv[position].startswith("--") else 1
        yield argv[position : position + length]
        position += length


def _escaped(value: str) -> str:
    """A value as `java.util.Properties` reads it back."""
    text = value.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")
    return f"\\{text}" if text.startswith(" ") else text
