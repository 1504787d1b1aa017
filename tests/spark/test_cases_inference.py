"""What goes wrong when a program on the nodes answers rows, on real executors."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from testbed import answer_nodes
from testbed.clusters import started_cluster

from tfos_core.errors import TfosError

if TYPE_CHECKING:
    from pyspark import SparkContext


def test_every_row_is_answered_in_order_whatever_partitions_and_results_are_like(sc: SparkContext, nothing_left: None) -> None:
    """Empty partitions, rows that are None, short last batches, and results far larger than the byte budget."""
    parts = [list(range(25)), [], [None, 1, None], [], list(range(100, 131)), [7]]
    rdd = sc.parallelize(parts, len(parts)).flatMap(answer_nodes.itself)
    args = {"bytes": 200_000, "batch_size": 10}
    with started_cluster(sc, answer_nodes.echo_fat, args, options={"feed_budget_bytes": 1 << 16}) as running:
        answers = running.inference(rdd, feed_timeout=60)
        assert answers.getNumPartitions() == len(parts)
        found = answers.map(answer_nodes.without_bytes).collect()
        running.shutdown()
    assert [row for row, _, _ in found] == [row for part in parts for row in part]
    assert {size for _, size, _ in found} == {200_000}
    sizes = [batch for _, _, batch in found]
    assert sizes == [10] * 20 + [5] * 5 + [3] * 3 + [10] * 30 + [1] + [1], "a batch never mixes partitions"


def test_a_binary_column_arrives_as_bytes_and_null_as_none(sc: SparkContext, nothing_left: None) -> None:
    from pyspark.sql import SparkSession

    df = SparkSession(sc).createDataFrame([(bytearray(b"\xff\x00a"),), (None,)], "b binary")
    with started_cluster(sc, answer_nodes.take_lengths, {}) as running:
        found = running.inference(df, feed_timeout=60).collect()
        running.shutdown()
    assert sorted(found, key=str) == [("NoneType", None), ("bytes", 3)]


def test_a_result_too_few_is_an_error_at_once_on_both_sides(sc: SparkContext, nothing_left: None) -> None:
    with started_cluster(sc, answer_nodes.answer_too_few, {}) as running:
        with pytest.raises(Exception, match=r"9 results for 10 rows: node worker:\d, batch 1, partition \d"):
            running.inference(sc.parallelize(range(400), 4), feed_timeout=600).collect()
        with pytest.raises(TfosError, match="9 results for 10 rows"):
            running.shutdown()


def test_the_program_of_the_page_about_inference_answers(sc: SparkContext, nothing_left: None) -> None:
    page = (Path(__file__).parents[2] / "docs" / "inference.md").read_text(encoding="utf-8")
    block = next(block for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "def main_fun" in block)
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(block, names)
    with started_cluster(sc, names["main_fun"], argparse.Namespace(batch_size=3)) as running:
        found = running.inference(sc.parallelize([(i, i) for i in range(10)], 2), feed_timeout=60).collect()
        running.shutdown()
    assert found == [{"digit": i, "length": 2} for i in range(10)]


def test_results_that_never_come_are_a_timeout(sc: SparkContext, nothing_left: None) -> None:
    with started_cluster(sc, answer_nodes.never_answer, {}) as running:
        with pytest.raises(Exception, match="consumed no row for 3 seconds"):
            running.inference(sc.parallelize(range(40), 2), feed_timeout=3).collect()
        with pytest.raises(TfosError, match="consumed no row for 3 seconds"):
            running.shutdown()
