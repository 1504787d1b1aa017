from __future__ import annotations

import pytest

from tfos_core.errors import EnvironmentCheckError
from tfos_core.spark_errors import python_error, reason_of

FROM_PYTHON = """An error occurred while calling o1.collect.
: org.apache.spark.SparkException: Job aborted due to stage failure: Could not recover from a failed barrier ResultStage.
org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "worker.py", line 1, in main
ValueError: the first
During handling of the above exception, another exception occurred:
tfos_core.errors.NodeFailedError: worker:0 failed: boom: again

\tat org.apache.spark.api.python.BasePythonRunner.handlePythonException(PythonRunner.scala:1)
Driver stacktrace:
\tat x
Caused by: org.apache.spark.api.python.PythonException: Traceback (most recent call last):
OtherError: of the driver's part
"""
FROM_JAVA = """An error occurred while calling o1.collect.
: org.apache.spark.SparkException: Job aborted.
\tat x
Caused by: java.io.IOException: Cannot run program "python9": error=2
\tat y
"""
FROM_JAVA_ALONE = """An error occurred while calling o959.addResourceProfile.
: org.apache.spark.SparkException: TaskResourceProfiles are only supported for some.
\tat org.apache.spark.resource.ResourceProfileManager.isSupported(ResourceProfileManager.scala:74)
"""


class GoneError(Exception):
    """As py4j's error when the JVM is gone: its text comes from there."""

    def __str__(self) -> str:
        raise ConnectionRefusedError(111, "Connection refused")


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (RuntimeError(FROM_PYTHON), "NodeFailedError: worker:0 failed: boom: again"),
        (RuntimeError(FROM_JAVA), 'IOException: Cannot run program "python9": error=2'),
        (RuntimeError(FROM_JAVA_ALONE), "SparkException: TaskResourceProfiles are only supported for some."),
        (RuntimeError("first line\nsecond line"), "first line"),
        (RuntimeError(), "RuntimeError"),
        (GoneError(), "GoneError"),
        (RuntimeError("x" * 5000), "x" * 600),
    ],
)
def test_the_reason_is_the_sentence_that_matters(error: Exception, reason: str) -> None:
    assert reason_of(error) == reason


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        (
            'IOException: Cannot run program "./environment/bin/python": error=2, No such file',
            "can not start ./environment/bin/python",
        ),
        ("PySparkRuntimeError: [PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.12", "another Python"),
        ("ModuleNotFoundError: No module named 'numpy'", "lacks a module"),
    ],
)
def test_a_python_that_does_not_fit_is_an_error_of_the_environment(reason: str, said: str) -> None:
    error = python_error(reason)
    assert isinstance(error, EnvironmentCheckError)
    assert said in str(error)
    assert "environment.pack" in str(error.hint)


def test_other_reasons_are_none() -> None:
    assert python_error("ExecutorLostFailure: exit code 137") is None
    assert python_error('IOException: Cannot run program "/opt/gpus.sh": error=13') is None
