"""Rows through a saved model, into the output and the bad rows."""

from __future__ import annotations

from typing import Any

from tfos_core.feed.source import batch_settings
from tfos_core.inference.output import OutputFolder
from tfos_core.inference.watch import TaskWatch
from tfos_core.inference.writing import write_counted
from tfos_core.saved_model.dataframe import PreparedInference
from tfos_core.saved_model.task import BAD_COLUMN, OnBadRow

__all__ = ("REASON_COLUMN", "write_answers")

#: Arrow batches of eight of these, where Spark does not bound their bytes itself.
_BLOCK_BYTES = 1 << 20
#: The column of the bad rows that says why.
REASON_COLUMN = "tfos_reason"


def write_answers(
    prepared: PreparedInference,
    watch: TaskWatch,
    *,
    output: OutputFolder,
    format: str,  # noqa: A002
    bad_rows: OutputFolder | None,
    gpus: int,
) -> tuple[int, int]:
    """Run the model over all rows and write, without committing; how many rows were written, and how many bad rows.

    Raises:
        Exception: Spark's, when a job failed.
        ConfigError: the format can not hold the columns.
    """
    sc = prepared.data.sparkSession.sparkContext
    on_bad_row = OnBadRow.REPORT if bad_rows is None else OnBadRow.KEEP
    answers = prepared.dataframe(on_bad_row, reporter=watch.reporter(sc), gpus=gpus)
    with batch_settings(prepared.data.sparkSession, prepared.data, _BLOCK_BYTES):
        if bad_rows is None:
            return write_counted(answers, str(output.staging), format=format), 0
        return _write_both(answers, output, format, bad_rows)


def _write_both(answers: Any, output: OutputFolder, format: str, bad_rows: OutputFolder) -> tuple[int, int]:  # noqa: A002
    """Both outputs from one pass of the model: what it gave is kept on the executors' disks between the two."""
    from pyspark import StorageLevel
    from pyspark.sql import functions as F  # noqa: N812

    answers = answers.persist(StorageLevel.DISK_ONLY)
    try:
        is_bad = F.col(BAD_COLUMN).isNotNull()
        written = write_counted(answers.where(~is_bad).drop(BAD_COLUMN), str(output.staging), format=format)
        row = answers.schema[BAD_COLUMN].dataType["row"].dataType
        columns = [F.col(BAD_COLUMN)["row"][name].alias(name) for name in row.names if name != REASON_COLUMN]
        bad = answers.where(is_bad).select(*columns, F.col(BAD_COLUMN)["reason"].alias(REASON_COLUMN))
        return written, write_counted(bad, str(bad_rows.staging), format="parquet")
    finally:
        answers.unpersist()
