"""What `tfos validate` says: findings, and what would run, as text and as plain values. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from tfos_cli.spec.checks.finding import Case, Finding, Level
from tfos_cli.spec.errors import SpecError
from tfos_cli.spec.loader import ResolvedSpec
from tfos_cli.spec.model import Stream
from tfos_core.errors import TopologyError
from tfos_core.shim.redaction import hide_url_passwords
from tfos_core.topology import ClusterPlan

__all__ = ("Report", "RunSummary", "findings_of", "summarise")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """What a run of the spec would be; `nodes` are names in the order of executor ids."""

    name: str
    nodes: tuple[str, ...]
    roles: str
    executors: int
    executor_cores: int
    executor_memory: str
    executor_memory_overhead: str | None
    overhead_reason: str
    master: str
    input_mode: str
    data: str | None
    keras: str
    keras_reason: str
    model: str = ""

    def lines(self) -> Iterator[str]:
        """For people."""
        beside = f" and {self.executor_memory_overhead} outside the JVM" if self.executor_memory_overhead else ""
        yield f"nodes:     {len(self.nodes)} ({self.roles})" if self.nodes else f"nodes:     {self.roles}"
        yield f"executors: {self.executors}, each with cores: {self.executor_cores}, memory: {self.executor_memory}{beside}"
        yield f"where:     {self.master}"
        if self.input_mode:
            yield f"input:     {self.input_mode} mode{f', {self.data}' if self.data else ''}"
        if self.model:
            yield f"model:     {self.model}, on the rows of {self.data}"
        else:
            yield f"keras:     {self.keras} ({self.keras_reason})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The findings of one spec; `summary` is None when the spec can not be understood."""

    file: str
    findings: tuple[Finding, ...]
    summary: RunSummary | None
    strict: bool

    @property
    def errors(self) -> int:
        """Number of errors."""
        return sum(finding.level is Level.ERROR for finding in self.findings)

    @property
    def warnings(self) -> int:
        """Number of warnings."""
        return len(self.findings) - self.errors

    @property
    def is_ok(self) -> bool:
        """Whether the spec passes: no error, and with `strict` no warning."""
        return not (self.findings if self.strict else self.errors)

    def to_dict(self) -> dict[str, Any]:
        """For programs."""
        return {
            "file": self.file,
            "ok": self.is_ok,
            "strict": self.strict,
            "errors": self.errors,
            "warnings": self.warnings,
            "findings": [asdict(finding) for finding in self.findings],
            "summary": asdict(self.summary) if self.summary else None,
        }

    def lines(self) -> Iterator[str]:
        """For people."""
        for finding in self.findings:
            yield from _finding_lines(finding)
            yield ""
        if self.summary is not None:
            yield f"{self.summary.name} would run as"
            yield from (f"  {line}" for line in self.summary.lines())
            yield ""
        yield self._verdict()

    def _verdict(self) -> str:
        if not self.findings:
            return f"{self.file}: no errors, no warnings"
        counts = f"{_count(self.errors, 'error')}, {_count(self.warnings, 'warning')}"
        because = " (--strict: warnings count)" if self.strict and not self.errors else ""
        return f"{self.file}: {counts}{because}"


def findings_of(error: SpecError) -> tuple[Finding, ...]:
    """The mistakes that keep a spec from being understood, as findings."""
    return tuple(
        Finding(
            id="spec",
            level=Level.ERROR,
            field=problem.field,
            value=problem.given,
            source=problem.where,
            message=problem.message,
            fix=problem.hint,
        )
        for problem in error.problems
    )


def summarise(resolved: ResolvedSpec) -> RunSummary | None:
    """What a run would be, or None when the roles do not add up."""
    case = Case(resolved=resolved, environ={})
    spec = resolved.spec
    model = resolved.model_inference
    try:
        plan = case.spec.cluster_plan()
    except TopologyError:
        return None
    data = spec.data
    return RunSummary(
        name=spec.name,
        nodes=tuple(slot.name for slot in plan.slots) if model is None else (),
        roles=_roles(resolved, plan),
        executors=len(plan.on_executors) if model is None else spec.num_executors,
        executor_cores=case.executor_cores or spec.spark.executor_cores,
        executor_memory=case.heap("executor").text,
        executor_memory_overhead=resolved.memory_overhead.memory,
        overhead_reason=resolved.memory_overhead.reason,
        master=spec.spark.master or "this machine, a process for each executor",
        input_mode="" if spec.is_parallel or model is not None else spec.input_mode,
        data=hide_url_passwords(data.path or data.source or "") or None if data else _stream(spec.stream),
        keras=resolved.keras.keras,
        keras_reason=resolved.keras.reason,
        model="" if model is None else str(model.export_dir),
    )


def _stream(stream: Stream | None) -> str | None:
    if stream is None:
        return None
    return f"files as they come in {stream.path}" if stream.source == "files" else f"lines from {stream.host}:{stream.port}"


def _roles(resolved: ResolvedSpec, plan: ClusterPlan) -> str:
    spec = resolved.spec
    if resolved.model_inference is not None:
        return "none; every Python worker of Spark loads the model"
    if spec.is_parallel:
        return f"{spec.num_executors} independent instances"
    return plan.describe() + (", ps on the driver" if spec.driver_ps_nodes and spec.num_ps else "")


def _finding_lines(finding: Finding) -> Iterator[str]:
    yield f"{finding.level}: {finding.message}  [{finding.id}]"
    if finding.id == "spec":  # the message has the key and its value
        yield f"  where: {finding.source}"
    elif finding.source == "default":
        yield f"  where: {finding.field} is {finding.value}" + (", the default" if finding.value != "not set" else "")
    else:
        yield f"  where: {finding.field or 'platform'} is {finding.value}, set by {finding.source}"
    if finding.fix:
        yield f"  fix:   {finding.fix}"


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
