"""The sentence that matters in an exception of Spark; Spark nests the cause in several layers of Java and Python traces."""

from __future__ import annotations

import re

__all__ = ("reason_of",)

_PYTHON_ERROR = re.compile(r"^(?:[A-Za-z_][\w.]*\.)?([A-Za-z_]\w*(?:Error|Exception|Interrupt)): (.+)$", re.MULTILINE)
_JAVA_CAUSE = re.compile(r"(?:Caused by: |^)(?:[\w$]+\.)+([\w$]+(?:Exception|Error)): ([^\n]+)", re.MULTILINE)
_LONGEST = 600


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
