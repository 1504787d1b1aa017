"""The small job of `tfos env-check SPEC`: the spec's own application, which probes instead of running the program."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tfos_cli.spec.model import Restart, TensorBoard
from tfos_cli.submit.plan import locate_data
from tfos_cli.submit.references import references_of
from tfos_core.jobplan import JobPlan, ProbePlan

if TYPE_CHECKING:
    from tfos_cli.spec.loader import ResolvedSpec

__all__ = ("NAME", "ProbeJob", "probe_job", "with_probe")

#: Name of the run.
NAME = "env-check"
#: Arguments of programs that, by their names, are places to write to.
_WRITTEN_ARGS = ("export_dir", "model_dir", "checkpoint", "checkpoints", "checkpoint_dir", "log_dir", "output_dir")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeJob:
    """A spec whose application is the one of the job, and what to try in it."""

    resolved: ResolvedSpec
    plan: ProbePlan


def probe_job(resolved: ResolvedSpec) -> ProbeJob:
    """The probe of a job. Pure.

    Raises:
        ConfigError: a function of the spec is not named in a way that can work.
    """
    references = {reference.field: reference for reference in references_of(resolved)}
    entrypoint = references.get("entrypoint")
    plan = ProbePlan(
        entrypoint=f"{entrypoint.module}:{entrypoint.function}" if entrypoint is not None else "",
        reads=tuple(dict.fromkeys(_reads(resolved))),
        writes=tuple(dict.fromkeys(_writes(resolved))),
    )
    # What asks for nodes of its own, or is not part of the application, is left out; what Spark starts is as in the job.
    spec = resolved.spec.model_copy(
        update={
            "name": NAME,
            "mode": "cluster",
            "num_ps": 0,
            "driver_ps_nodes": False,
            "eval_node": False,
            "equal_steps": False,
            "data": None,
            "stream": None,
            "infer": None,
            "tensorboard": TensorBoard(),
            "restart": Restart(),
        }
    )
    return ProbeJob(resolved=replace(resolved, spec=spec), plan=plan)


def with_probe(plan: JobPlan, probe: ProbePlan) -> JobPlan:
    """The plan for the driver shim."""
    return replace(plan, probe=probe)


def _reads(resolved: ResolvedSpec) -> Iterator[str]:
    spec = resolved.spec
    if spec.data is not None and spec.data.path:
        yield locate_data(resolved, spec.data.path)
    if spec.stream is not None and spec.stream.path:
        yield locate_data(resolved, spec.stream.path)
    if spec.infer is not None and spec.infer.export_dir:
        yield locate_data(resolved, spec.infer.export_dir)


def _writes(resolved: ResolvedSpec) -> Iterator[str]:
    spec = resolved.spec
    for path in (
        spec.tensorboard.log_dir,
        spec.infer.output.path if spec.infer is not None else None,
        spec.infer.bad_rows if spec.infer is not None else None,
        spec.stream.checkpoint if spec.stream is not None else None,
        *_argument_paths(spec.args),
    ):
        if path:
            yield locate_data(resolved, path)


def _argument_paths(args: Mapping[str, Any] | tuple[str, ...]) -> Iterator[str]:
    if isinstance(args, Mapping):
        yield from (args[name] for name in _WRITTEN_ARGS if isinstance(args.get(name), str))
