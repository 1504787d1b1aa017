"""Whether the rows that Spark hands to a Python task ended, or broke off.

When what makes the rows fails (a Python function before this one, a shuffle block that is gone), Spark's executor closes the stream
of rows and fails the task once Python has answered. Until then it looks to the task like an end: pyspark's `load_stream` and
pyarrow's stream reader both take the end of a file for the end of the rows. A feed task that reports a partition as fed by then has
lost the rest of it, because the next attempt is told that nothing is left to do. What tells them apart: behind the last row Spark
writes an end mark (`SpecialLengths.END_OF_STREAM` of pyspark.serializers, which its worker reads after the task's function).
"""

from __future__ import annotations

import sys
from typing import Any

__all__ = ("broke_off",)


def broke_off() -> bool:
    """To be asked once the rows are exhausted: whether the stream that they came from was closed without an end mark.

    False where nothing can be told: outside a Spark task, or in a worker that keeps its stream elsewhere than pyspark 3.5 to 4.3.
    """
    stream = _stream()
    # Waits for the mark, which Spark writes right after the rows, or for the end of the stream.
    return stream is not None and not stream.peek(1)


def _stream() -> Any:
    """What Spark's Python worker reads: `infile` of `pyspark.worker.main`, below on the stack of this call."""
    frame = sys._getframe().f_back
    while frame is not None:
        if frame.f_code.co_name == "main" and frame.f_globals.get("__name__") in ("pyspark.worker", "__main__"):
            stream = frame.f_locals.get("infile")
            if hasattr(stream, "peek"):
                return stream
        frame = frame.f_back
    return None
