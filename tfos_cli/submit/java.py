"""Which Java starts the job, and whether it is new enough for its Spark: it is run once for its version."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from tfos_core.errors import EnvironmentCheckError

if TYPE_CHECKING:
    from tfos_cli.submit.spark_home import SparkHome

__all__ = ("Java", "JavaQuestion", "check_java")

JAVA_DEADLINE_S = 30.0

_VERSION = re.compile(r'version "(\d+)(?:\.(\d+))?')
_FIRST_OF_SPARK_4 = 17


@dataclass(frozen=True, slots=True, kw_only=True)
class Java:
    """A Java runtime: the executable, and its feature version (8, 11, 17, ...)."""

    path: Path
    version: int


class JavaQuestion:
    """Asks the Java that spark-submit will use, from `JAVA_HOME` or `PATH`, for its version; while it thinks, others may work.

    A context manager, so that no process is left when nobody wants the answer. Nothing that is wrong is said before `answer`.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self._path = _java_path(environ)
        self._failure: OSError | None = None
        self._process: subprocess.Popen[str] | None = None
        if self._path is not None:
            try:
                self._process = _ask(self._path)
            except OSError as exc:
                self._failure = exc

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """End the process, if it has not ended; may be called twice."""
        if self._process is not None:
            if self._process.poll() is None:
                self._process.kill()
            with self._process:  # closes its pipe and waits for it
                self._process = None

    def answer(self, spark: SparkHome) -> Java:
        """The Java; called once.

        Raises:
            EnvironmentCheckError: there is none, it does not start, or it is too old for this Spark.
        """
        needed = _FIRST_OF_SPARK_4 if spark.release >= (4, 0) else 8
        install = f"Install a Java runtime of version {max(needed, 17)} (such as 'apt install openjdk-17-jre-headless')"
        path = self._path
        if path is None:
            raise EnvironmentCheckError(_missing(self._environ), f"{install}, or set JAVA_HOME.")
        version = self._version(path, f"{install}, or set JAVA_HOME to a working one.")
        if version < needed:
            raise EnvironmentCheckError(
                f"Java {version} at {path} is too old: Spark {spark.version} needs Java {needed} or newer",
                f"{install}, and set JAVA_HOME to it.",
            )
        return Java(path=path, version=version)

    def _version(self, path: Path, hint: str) -> int:
        process = self._process
        if process is None:
            raise EnvironmentCheckError(f"Java at {path} does not start: {self._failure}", hint) from self._failure
        try:
            output, _ = process.communicate(timeout=JAVA_DEADLINE_S)
        except subprocess.TimeoutExpired as exc:
            raise EnvironmentCheckError(f"Java at {path} does not start: {exc}", hint) from exc
        finally:
            self.close()
        match = _VERSION.search(output)
        if process.returncode != 0 or match is None:
            said = output.strip().splitlines()[:1] or [f"exit code {process.returncode}"]
            raise EnvironmentCheckError(f"Java at {path} does not start: {said[0]}", hint)
        major, minor = int(match[1]), int(match[2] or 0)
        return minor if major == 1 else major  # "1.8.0_392" is Java 8


def check_java(environ: Mapping[str, str], spark: SparkHome) -> Java:
    """Ask, and wait for the answer.

    Raises:
        EnvironmentCheckError: see `JavaQuestion.answer`.
    """
    with JavaQuestion(environ) as question:
        return question.answer(spark)


def _ask(path: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [str(path), "-version"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,  # where Java says it
        text=True,
        errors="replace",
    )


def _java_path(environ: Mapping[str, str]) -> Path | None:
    # The same order as bin/spark-class: JAVA_HOME without a look at PATH, when it is set.
    home = environ.get("JAVA_HOME")
    if home:
        path = Path(home) / "bin" / "java"
        return path if os.access(path, os.X_OK) else None
    on_path = shutil.which("java", path=environ.get("PATH", os.defpath))
    return None if on_path is None else Path(on_path)


def _missing(environ: Mapping[str, str]) -> str:
    home = environ.get("JAVA_HOME")
    if home:
        return f"JAVA_HOME is {home}, but there is no program bin/java in it"
    return "no Java was found: JAVA_HOME is not set, and PATH has no program 'java'"
