"""This machine and its environment: platform, run folder, variables."""

from __future__ import annotations

import os
from pathlib import Path

from tfos_cli.spec.checks.finding import Case, Finding, Findings, Level
from tfos_cli.spec.checks.kubernetes import names_a_secret
from tfos_cli.spec.overrides import ENVIRONMENT_NAMES, SET_PREFIX
from tfos_cli.spec.places import below
from tfos_cli.spec.problems import did_you_mean
from tfos_cli.spec.values import is_secret_name

__all__ = ("RULES",)

SET_BY_TFOS = {
    "TF_CONFIG": "it describes the cluster, which is known at run time only",
    "TF_USE_LEGACY_KERAS": "the key keras decides it",
    "CUDA_VISIBLE_DEVICES": "the key gpus decides it",
}


def platform(case: Case) -> Findings:
    """Unix only."""
    if case.platform in ("win32", "cygwin"):
        yield Finding(
            id="windows",
            level=Level.ERROR,
            field="",
            value=case.platform,
            source="this machine",
            message="tfos does not run on Windows: it hands Unix sockets and process groups from Spark to TensorFlow",
            fix="Run it on Linux or macOS, or on Windows inside WSL 2.",
        )


def run_folder(case: Case) -> Findings:
    """The record of a run is written before anything is submitted."""
    home = case.environ.get("TFOS_HOME") or ""
    folder = below(Path.cwd(), home or "~/.tfos")
    existing = folder
    while not os.path.lexists(existing) and existing != existing.parent:
        existing = existing.parent
    if existing.is_dir() and os.access(existing, os.W_OK | os.X_OK):
        return
    reason = "is not a folder" if not existing.is_dir() else "can not be written"
    yield Finding(
        id="run-folder",
        level=Level.ERROR,
        field="TFOS_HOME",
        value=str(folder),
        source="environment:TFOS_HOME" if home else "default",
        message=f"records of runs go to {folder}, and {existing} {reason}",
        fix="Set TFOS_HOME to a folder that you can write.",
    )


def unknown_names(case: Case) -> Findings:
    """Mostly typing errors."""
    for name in case.resolved.unknown_environment:
        yield Finding(
            id="unknown-environment",
            level=Level.WARNING,
            field=name,
            value="not shown",
            source=f"environment:{name}",
            message=f"nothing reads the environment variable {name}",
            fix=did_you_mean(name, ENVIRONMENT_NAMES) or f"For a key of the spec write {SET_PREFIX}KEY, with __ for a dot.",
        )


def variables(case: Case) -> Findings:
    """Variables that tfos sets itself, and secrets in the open."""
    for name in case.spec.environment.vars:
        field = f"environment.vars.{name}"
        if name in SET_BY_TFOS:
            message = f"tfos sets {name} on every node: {SET_BY_TFOS[name]}"
            yield case.error("reserved-variable", field, message, f"Leave {name} out.")
        elif is_secret_name(name):
            message = f"{name} looks like a secret, and environment.vars is not for secrets"
            yield case.warning(
                "secret-in-vars", field, message, f"Name it in environment.secrets, and export {name} before tfos runs."
            )


def secrets(case: Case) -> Findings:
    """A secret has one source: the environment of tfos."""
    environment = case.spec.environment
    for name in environment.secrets:
        if name in environment.vars:
            message = f"{name} is in environment.vars as well"
            yield case.error("secret-twice", "environment.secrets", message, "Leave it out of environment.vars.")
        elif name not in case.environ and not names_a_secret(case, name):
            message = f"the secret {name} is not set in this environment"
            yield case.warning("secret-not-set", "environment.secrets", message, f"Export {name} before tfos train.")


RULES = (platform, run_folder, unknown_names, variables, secrets)
