"""Everything that is written before spark-submit starts, and taken away after it has ended."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from tfos_cli.spec.masters import MasterKind
from tfos_cli.submit.command import SparkSubmitCommand, build_command, write_secret_properties
from tfos_cli.submit.environment_pack import write_environment
from tfos_cli.submit.java import Java, JavaQuestion
from tfos_cli.submit.plan import build_plan
from tfos_cli.submit.properties import Scratch, cluster_kind, is_on_this_machine
from tfos_cli.submit.shipping import write_shipment
from tfos_cli.submit.spark_home import SparkHome, link_private_home, locate_spark
from tfos_core.jobplan import JobPlan

if TYPE_CHECKING:
    from tfos_cli.remote.place import RemoteRun
    from tfos_cli.spec.loader import ResolvedSpec
    from tfos_cli.spec.model import JobSpec

__all__ = ("Preparation", "prepare")


@dataclass(frozen=True, slots=True, kw_only=True)
class Preparation:
    """A job that is ready to start. A context manager: what the run record does not keep is removed at the end.

    `left_out` names modules beside the program that did not travel, because Python or TensorFlow has one of that name.
    """

    command: SparkSubmitCommand
    plan: JobPlan
    spark: SparkHome
    java: Java
    scratch: Scratch
    left_out: tuple[str, ...]

    def clean(self) -> None:
        """Remove Spark's scratch and the file with secrets; again is no error. Call it when the job's processes are gone."""
        shutil.rmtree(self.scratch.folder, ignore_errors=True)
        if self.command.properties_file is not None:
            self.command.properties_file.unlink(missing_ok=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.clean()


def prepare(
    resolved: ResolvedSpec,
    *,
    run_id: str,
    run_folder: Path,
    plan_path: Path,
    channel: Path | None,
    environ: Mapping[str, str],
    detached: bool = False,
    java_question: JavaQuestion | None = None,
    tell: Callable[[str], object] = lambda _: None,
) -> Preparation:
    """Check the machine, write the files of a job, and return its command.

    Args:
        java_question: whatever was asked before; it is closed. Default: it is asked now.
        tell: gets a sentence before something that takes long.

    Raises:
        EnvironmentCheckError: no Java or no Spark that can run it, or no environment to ship.
        ConfigError: the spec asks for what can not be submitted.
        OSError: the run folder can not be written.
    """
    # What reaches spark-submit counts, not only what this shell has.
    hadoop = {**environ, **resolved.spec.environment.vars}
    if cluster_kind(resolved.spec) is MasterKind.YARN:
        from tfos_cli.remote.hadoop_conf import require_conf

        require_conf(hadoop)
    spark = locate_spark(environ)
    # Java takes as long to say its version as the archives take to be made.
    with JavaQuestion(environ) if java_question is None else java_question as question:
        left_out = write_shipment(resolved, run_folder)
        java = question.answer(spark)
    remote = _remote_run(resolved.spec, run_id, hadoop, spark_home=spark.path)
    plan = build_plan(
        resolved,
        run_id=run_id,
        run_folder=run_folder,
        channel=channel,
        detached=detached,
        record=None if remote is None else remote.record,
    )
    scratch = Scratch(folder=run_folder / "spark")
    home = scratch.home if is_on_this_machine(resolved.spec) else spark.path
    command = build_command(
        resolved, plan_path=plan_path, run_folder=run_folder, python=sys.executable, spark_home=home, spark_version=spark.version
    )
    prepared = Preparation(
        command=command,
        plan=plan,
        spark=spark,
        java=java,
        scratch=scratch,
        left_out=left_out,
    )
    try:
        write_environment(resolved, run_folder, environ, tell=tell)
        if home == scratch.home:
            scratch.temporary.mkdir(parents=True)
            link_private_home(spark, scratch.home)
        if remote is not None:
            remote.write(run_folder)
        plan_path.touch(mode=0o600)  # values of `environment.vars` are in it
        plan_path.write_text(plan.to_json(), encoding="utf-8")
        write_secret_properties(command, spark_home=spark.path, environ=environ)
    except BaseException:
        prepared.clean()
        raise
    return prepared


def _remote_run(spec: JobSpec, run_id: str, environ: Mapping[str, str], *, spark_home: Path) -> RemoteRun | None:
    """What is known of the run when its driver will be on the cluster."""
    if spec.spark.deploy_mode != "cluster":
        return None
    from tfos_cli.remote.place import RemoteRun

    return RemoteRun.of(spec, run_id, environ, spark_home=spark_home)
