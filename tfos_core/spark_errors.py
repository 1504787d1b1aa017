"""The sentence that matters in an exception of Spark, which nests the cause in several layers of Java and Python traces."""

from __future__ import annotations

import re

from tfos_core.errors import EnvironmentCheckError

__all__ = ("python_error", "reason_of")

_PYTHON_ERROR = re.compile(r"^(?:[A-Za-z_][\w.]*\.)?([A-Za-z_]\w*(?:Error|Exception|Interrupt)): (.+)$", re.MULTILINE)
#: The outermost stands behind the colon that py4j begins its second line with.
_JAVA_CAUSE = re.compile(r"(?:Caused by: |^(?:: )?)(?:[\w$]+\.)+([\w$]+(?:Exception|Error)): ([^\n]+)", re.MULTILINE)
_LONGEST = 600
#: What Java says when a program is not there.
_NO_PYTHON = re.compile(r'Cannot run program "([^"]*python[^"]*)"')


def reason_of(exc: BaseException) -> str:
    """What went wrong, without traces: the last Python error that a task raised, else Java's innermost cause, else the text.

    >>> reason_of(RuntimeError("plain"))
    'plain'
    """
    try:
        text = str(exc)
    except Exception:  # noqa: BLE001 - py4j asks the JVM for the text, and that may be gone
        text = ""
    python = _PYTHON_ERROR.findall(text.partition("Driver stacktrace:")[0])
    python = [(kind, said) for kind, said in python if kind not in ("PythonException", "SparkException", "Py4JJavaError")]
    if python:
        kind, said = python[-1]
        return f"{kind}: {said}"[:_LONGEST]
    java = _JAVA_CAUSE.findall(text)
    if java:
        kind, said = java[-1]
        return f"{kind}: {said}"[:_LONGEST]
    return text.strip().partition("\n")[0][:_LONGEST] or type(exc).__name__


def python_error(reason: str) -> EnvironmentCheckError | None:
    """The error for a reason that is about the executors' Python, else None."""
    if (program := _NO_PYTHON.search(reason)) is not None:
        return EnvironmentCheckError(
            f"executors can not start {program[1]}: {reason}",
            "It has to be on every host. A packed virtual environment (environment.pack) starts the Python that it was made from, "
            "which has to be at the same place there; a packed conda environment brings its own.",
        )
    if "PYTHON_VERSION_MISMATCH" in reason:
        return EnvironmentCheckError(
            f"the executors run another Python than the driver: {reason}",
            "Use the same minor version on both sides: install it, point PYSPARK_PYTHON at it, or ship it with environment.pack.",
        )
    if "No module named" in reason:
        return EnvironmentCheckError(
            f"the executors' Python lacks a module: {reason}",
            "Point PYSPARK_PYTHON at an environment that has it on every executor, or ship one with environment.pack.",
        )
    return None
