"""What `--dry-run` shows: everything that a run would do, and nothing done."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfos_cli.remote.place import RemoteRun, private_path
from tfos_cli.runs import REMOTE_FILE
from tfos_cli.spec.masters import MasterKind
from tfos_cli.spec.memory import DRIVER_OVERHEAD_KEYS, driver_overhead
from tfos_cli.submit.command import SparkSubmitCommand, build_command
from tfos_cli.submit.environment_pack import shipped_environment
from tfos_cli.submit.gpus import spark_gives_gpus
from tfos_cli.submit.one_per_executor import schedules_stages
from tfos_cli.submit.plan import build_plan
from tfos_cli.submit.properties import Scratch, cluster_kind, is_on_this_machine
from tfos_cli.submit.references import references_of
from tfos_cli.submit.resolved_text import resolved_yaml, visible_spec
from tfos_cli.submit.shipping import collect_sources, shipment_of
from tfos_cli.submit.spark_home import SparkHome
from tfos_core.jobplan import JobPlan
from tfos_core.topology import ClusterPlan

if TYPE_CHECKING:
    from tfos_cli.spec.loader import ResolvedSpec

__all__ = ("DryRun",)


@dataclass(frozen=True, slots=True, kw_only=True)
class DryRun:
    """A run that does not happen."""

    resolved: ResolvedSpec
    command: SparkSubmitCommand
    plan: JobPlan
    cluster: ClusterPlan | None
    spark: SparkHome
    files: tuple[Path, ...]

    @classmethod
    def of(
        cls,
        resolved: ResolvedSpec,
        *,
        run_id: str,
        run_folder: Path,
        spark: SparkHome,
        python: str,
        environ: Mapping[str, str] | None = None,
    ) -> DryRun:
        """Work out what a run would do. Looks at the program's folder, writes nothing.

        Args:
            environ: names Hadoop's settings; the default is none.

        Raises:
            ConfigError: what a run would refuse before it starts anything.
        """
        spec = resolved.spec
        plan_path = run_folder / "plan.json"
        cluster = spec.cluster_plan() if resolved.model_inference is None else None
        collect_sources(references_of(resolved))
        home = Scratch(folder=run_folder / "spark").home if is_on_this_machine(spec) else spark.path
        command = build_command(
            resolved, plan_path=plan_path, run_folder=run_folder, python=python, spark_home=home, spark_version=spark.version
        )
        remote = RemoteRun.of(spec, run_id, {**(environ or {}), **spec.environment.vars}, spark_home=spark.path)
        shipment = shipment_of(resolved, run_folder)
        written = [plan_path, run_folder / "spec.resolved.yaml", run_folder / "command.json", shipment.shim, *shipment.py_files]
        if remote is not None:
            written += [run_folder / REMOTE_FILE, private_path(run_folder)]
        packed = shipped_environment(resolved, run_folder)
        if packed is not None and Path(packed).is_relative_to(run_folder):
            written.append(Path(packed))
        if shipment.gpu_discovery is not None:
            written.append(shipment.gpu_discovery)
        if command.properties_file is not None:
            written.append(command.properties_file)
        return cls(
            resolved=resolved,
            command=command,
            plan=build_plan(
                resolved,
                run_id=run_id,
                run_folder=run_folder,
                channel=run_folder / "channel.json",
                record=None if remote is None else remote.record,
            ),
            cluster=cluster,
            spark=spark,
            files=tuple(written),
        )

    def text(self) -> str:
        """For people: comments, the command, and the resolved spec, so that the whole can be pasted into a shell or a file."""
        lines = [f"# {line}" if line else "#" for line in self._summary()]
        return "\n".join([*lines, "", self.command.render(), "", "# resolved spec", resolved_yaml(self.resolved)])

    def to_dict(self) -> dict[str, Any]:
        """For programs."""
        spec = self.resolved.spec
        return {
            "dry_run": True,
            "command": self.command.to_dict() | {"rendered": self.command.render()},
            "nodes": [
                {"name": slot.name, "executor_id": slot.executor_id, "on_driver": slot.on_driver}
                for slot in (self.cluster.slots if self.cluster is not None else ())
            ],
            "num_nodes": spec.num_nodes if self.cluster is not None else 0,
            "num_executors": spec.num_executors,
            "keras": {"choice": self.resolved.keras.keras, "reason": self.resolved.keras.reason},
            "memory_overhead": {
                "value": self.resolved.memory_overhead.memory,
                "reason": self.resolved.memory_overhead.reason,
            },
            "spark": {"version": self.spark.version, "home": str(self.spark.path), "source": self.spark.source},
            "record": self.plan.remote.record if self.plan.remote is not None else None,
            "files": [str(path) for path in self.files],
            "spec": visible_spec(self.resolved),
            "provenance": dict(self.resolved.provenance),
        }

    def _summary(self) -> Iterator[str]:
        spec = self.resolved.spec
        spark = spec.spark
        yield f"dry run of {spec.name}: nothing was started or written"
        yield ""
        if self.cluster is None:
            yield "nodes:     none; every Python worker of Spark loads the model"
        elif spec.is_parallel:
            yield f"instances: {spec.num_executors}, independent of each other"
        else:
            yield f"nodes:     {len(self.cluster.slots)} ({self.cluster.describe()})" + _on_driver(self.cluster)
        yield (
            f"executors: {spec.num_executors} on {self._place()}, each with {_count(spark.executor_cores, 'core')}" + self._memory()
        )
        if not schedules_stages(cluster_kind(spec), self.spark.version):
            yield f"tasks:     one at a time on each executor (Spark {self.spark.version} can not give nodes more there)"
        if self.cluster is not None and not spec.is_parallel:
            yield f"input:     {spec.input_mode} mode{', a stream' if spec.stream is not None else ''}"
        yield from _inference(self.plan)
        if self.cluster is not None:
            yield f"keras:     {self.resolved.keras.keras} ({self.resolved.keras.reason})"
        if self.plan.remote is not None:
            yield f"driver:    on the cluster, with {self._driver_memory()}; its record is {self.plan.remote.record}"
        if spec.gpus.per_node:
            yield f"gpus:      {spec.gpus.per_node} for each node that trains, {self._gpus()}"
        yield f"spark:     {self.spark.version} in {self.spark.path} ({self.spark.source})"
        if spec.environment.pack != "none":
            yield f"python:    {self._python()}"
        if spec.environment.secrets:
            way = "on the control channel only" if self.plan.remote is None else "in a file for the driver only, then as here"
            yield f"secrets:   {', '.join(spec.environment.secrets)} (values from this shell, {way})"
        yield ""
        yield "files that a run would write first:"
        for path in self.files:
            yield f"  {path}"
        if self.command.properties_file is not None:
            yield f"  (the last one has the values of {', '.join(sorted(self.command.secret_properties))})"

    def _python(self) -> str:
        pack = self.resolved.spec.environment.pack
        if is_on_this_machine(self.resolved.spec):
            return "of the driver; nothing is packed for executors of this machine"
        if pack == "venv":
            version = f"{sys.version_info[0]}.{sys.version_info[1]}"
            return f"{sys.prefix} travels; executors need Python {version} in {sys.base_prefix}, which it was made from"
        return f"{sys.prefix} travels, with its Python" if pack == "conda" else f"{pack} travels"

    def _gpus(self) -> str:
        spec = self.resolved.spec
        if spark_gives_gpus(spec, cluster_kind(spec)):
            return "from Spark's resource scheduling"
        return "found with nvidia-smi by the nodes of each host"

    def _memory(self) -> str:
        overhead = self.resolved.memory_overhead
        heap = f", {self.resolved.spec.spark.executor_memory} of heap"
        return f"{heap}, {overhead.memory} beside it ({overhead.reason})" if overhead.memory else heap

    def _driver_memory(self) -> str:
        overhead = driver_overhead(self.resolved.spec) >> 20
        known = DRIVER_OVERHEAD_KEYS.isdisjoint(self.resolved.spec.spark.conf)
        return f"{self.resolved.spec.spark.driver_memory} of heap" + (f" and {overhead}m beside it" if known else "")

    def _place(self) -> str:
        kind = cluster_kind(self.resolved.spec)
        if kind is MasterKind.EMBEDDED:
            return "this machine, as processes of their own"
        return str(self.resolved.spec.spark.master)


def _on_driver(cluster: ClusterPlan) -> str:
    on_driver = len(cluster.slots) - len(cluster.on_executors)
    return f", {on_driver} of them on the driver" if on_driver else ""


def _inference(plan: JobPlan) -> Iterator[str]:
    if plan.infer is None:
        return
    if plan.infer.export_dir is not None:
        yield f"model:     {plan.infer.export_dir} ({plan.infer.signature_def_key})"
    yield f"output:    {plan.infer.output} ({plan.infer.output_format}, mode {plan.infer.output_mode})"
    if plan.infer.bad_rows is not None:
        yield f"bad rows:  {plan.infer.bad_rows}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
