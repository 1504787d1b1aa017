"""Columns with any name in `mapInArrow`.

pyspark looks the columns of `mapInArrow` up with `df[name]`, which takes dots and backticks in a name for syntax. So such names
stay on the driver, and the task puts them back.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

__all__ = ("named", "quoted", "with_plain_names")


def quoted(name: str) -> str:
    """A column's name as `select` takes it: dots and backticks in it are part of the name."""
    return "`" + name.replace("`", "``") + "`"


def with_plain_names(df: Any) -> tuple[Any, tuple[str, ...]]:
    """`df` as `mapInArrow` can take it, and the names of its columns if they had to be replaced, else ().

    >>> class Frame:
    ...     columns = ["id", "sepal length"]
    >>> with_plain_names(Frame())[1]
    ()
    """
    names = tuple(df.columns)
    if not any("." in name or "`" in name for name in names):
        return df, ()
    return df.toDF(*(f"c{index}" for index in range(len(names)))), names


def named(batches: Iterable[Any], names: Sequence[str]) -> Iterator[Any]:
    """Record batches with these names, or with their own when there are none."""
    if not names:
        return iter(batches)
    import pyarrow as pa

    return (pa.RecordBatch.from_arrays(batch.columns, names=list(names)) for batch in batches)
