"""`check`: every offline rule of TensorFlow on Spark, over one resolved spec. Starts nothing and imports no user code."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

from tfos_cli.spec.checks import (
    cluster,
    code,
    environment,
    gpus,
    inference,
    inputs,
    kubernetes,
    machine,
    roles,
    security,
    sizes,
    storage,
    streams,
)
from tfos_cli.spec.checks.finding import Case, Finding, Level
from tfos_cli.spec.loader import ResolvedSpec

__all__ = ("ALL_RULES", "Finding", "Level", "check")

ALL_RULES = (
    *machine.RULES,
    *environment.RULES,
    *inference.RULES,
    *roles.RULES,
    *cluster.RULES,
    *kubernetes.RULES,
    *security.RULES,
    *gpus.RULES,
    *sizes.RULES,
    *code.RULES,
    *inputs.RULES,
    *storage.RULES,
    *streams.RULES,
)


def check(
    resolved: ResolvedSpec,
    *,
    environ: Mapping[str, str] | None = None,
    platform: str = sys.platform,
    search_path: tuple[str, ...] | None = None,
) -> tuple[Finding, ...]:
    """What is wrong with a job, errors first; looks at the spec, at local files that it names, and at nothing else.

    Args:
        environ: where `TFOS_HOME` and the names of secrets are looked up. Default: this process's environment.
        search_path: folders where `package.module` is looked up. Default: `sys.path`.
    """
    case = Case(
        resolved=resolved,
        environ=os.environ if environ is None else environ,
        platform=platform,
        search_path=tuple(sys.path) if search_path is None else search_path,
    )
    found = [finding for rule in ALL_RULES for finding in rule(case)]
    return tuple(sorted(found, key=lambda finding: finding.level is not Level.ERROR))
