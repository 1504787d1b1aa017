"""Why a node was stopped reaches tasks that come later."""

from __future__ import annotations

from pathlib import Path

import pytest

from tfos_core.errors import FeedError
from tfos_core.feed.last_word import leave_word, word_of


def test_a_task_that_comes_later_hears_why_the_node_is_gone(tmp_path: Path) -> None:
    environ = {"SPARK_LOCAL_DIRS": f"{tmp_path},/elsewhere"}
    assert word_of(environ, "g1") is None
    leave_word(environ, "g1", "worker:1", "9 results for 10 rows: node worker:0, batch 1, partition 0")
    found = word_of(environ, "g1")
    assert isinstance(found, FeedError)
    assert found.message == "the node worker:1 was stopped: 9 results for 10 rows: node worker:0, batch 1, partition 0"
    assert word_of(environ, "g2") is None, "another cluster of the same executor"


@pytest.mark.parametrize("environ", [{}, {"SPARK_LOCAL_DIRS": ""}, {"SPARK_LOCAL_DIRS": "/no/such/folder"}])
def test_without_a_scratch_nothing_is_known(environ: dict[str, str]) -> None:
    leave_word(environ, "g1", "worker:1", "r")
    assert word_of(environ, "g1") is None


def test_a_note_that_is_damaged_is_none(tmp_path: Path) -> None:
    (tmp_path / "tfos-stopped-g1.json").write_text("{")
    assert word_of({"SPARK_LOCAL_DIRS": str(tmp_path)}, "g1") is None


def test_an_application_that_runs_many_clusters_keeps_the_words_of_the_latest(tmp_path: Path) -> None:
    environ = {"SPARK_LOCAL_DIRS": str(tmp_path)}
    for number in range(30):
        leave_word(environ, f"g{number}", "worker:1", "r")
    assert len(list(tmp_path.iterdir())) == 8
    assert word_of(environ, "g29") is not None
