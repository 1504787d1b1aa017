from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest

from tfos_core.column_names import named, quoted, with_plain_names


@dataclass
class Frame:
    columns: list[str]

    def toDF(self, *names: str) -> Frame:  # noqa: N802 - Spark's
        return Frame(list(names))


@pytest.mark.parametrize("columns", [["a.b", "c"], ["a`b", "c"]])
def test_names_that_pyspark_takes_for_syntax_are_replaced_and_put_back(columns: list[str]) -> None:
    plain, names = with_plain_names(Frame(columns))
    assert (plain.columns, list(names)) == (["c0", "c1"], columns)
    batches: Any = [pa.RecordBatch.from_pydict({"c0": [1], "c1": ["x"]})]
    assert [batch.to_pydict() for batch in named(batches, names)] == [{columns[0]: [1], columns[1]: ["x"]}]


def test_other_names_stay() -> None:
    frame = Frame(["a b", "ä", "select"])
    assert with_plain_names(frame) == (frame, ())
    batch = pa.RecordBatch.from_pydict({"a b": [1]})
    assert list(named([batch], ())) == [batch]


def test_a_quoted_name_is_one_name() -> None:
    assert quoted("a.`b") == "`a.``b`"
