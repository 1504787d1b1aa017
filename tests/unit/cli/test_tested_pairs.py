"""Which versions of Spark and TensorFlow were tested together, for `tfos env-check` and the documentation."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tfos_cli.envcheck.check import Status
from tfos_cli.envcheck.pairs import VersionPair, known_pairs, pairs_table, version_checks, with_pair, write_pairs

ROOT = Path(__file__).parents[3]
OLD = VersionPair(
    name="oldest", pyspark="3.5.9", tensorflow="2.16.2", python="3.11.7", java="17", keras="3.5.0", tf_keras="2.16.0",
    numpy="1.26.4", pandas="2.3.3", pyarrow="18.1.0", protobuf="4.25.9", tested="2026-01-02",
)  # fmt: skip
NEW = replace(OLD, name="newest", pyspark="4.3.0", tensorflow="2.21.0")
BOTH = (OLD, NEW)


@pytest.mark.parametrize(
    ("pyspark", "tensorflow", "status", "words"),
    [
        ("3.5.1", "2.16.1", Status.OK, "pyspark 3.5.1 with TensorFlow 2.16.1 is tested"),
        ("4.3.0", "2.21.0", Status.OK, "is tested"),
        ("4.0.1", "2.18.0", Status.WARNING, "between the pairs"),
        ("4.3.0", "2.16.2", Status.WARNING, "between the pairs"),
        ("4.4.0", "2.21.0", Status.WARNING, "pyspark is newer"),
        ("4.3.0", "2.22.0", Status.WARNING, "TensorFlow is newer"),
        ("3.4.0", "2.16.0", Status.WARNING, "pyspark is older"),
        ("10.0.0", "2.100.0", Status.WARNING, "pyspark is newer and TensorFlow is newer"),
    ],
)
def test_a_tested_pair_is_in_order_and_any_other_a_warning(pyspark: str, tensorflow: str, status: Status, words: str) -> None:
    (check,) = version_checks(pyspark, tensorflow, BOTH)
    assert (check.id, check.status) == ("versions", status)
    assert words in check.found
    assert bool(check.fix) is (status is Status.WARNING)


@pytest.mark.parametrize(("pyspark", "tensorflow", "pairs"), [("", "2.21.0", BOTH), ("4.3.0", "", BOTH), ("4.3.0", "2.21.0", ())])
def test_nothing_is_said_about_what_is_not_known(pyspark: str, tensorflow: str, pairs: tuple[VersionPair, ...]) -> None:
    assert list(version_checks(pyspark, tensorflow, pairs)) == []


def test_a_pair_takes_the_place_of_the_one_of_its_name(tmp_path: Path) -> None:
    newer = replace(NEW, pyspark="4.4.0")
    write_pairs(with_pair(with_pair((NEW,), OLD), newer), tmp_path / "pairs.json")
    assert known_pairs(tmp_path / "pairs.json") == (OLD, newer)


def test_the_table_in_the_docs_is_of_the_pairs_that_env_check_knows() -> None:
    """`make test-matrix` writes both."""
    text = (ROOT / "docs" / "versions.md").read_text(encoding="utf-8")
    table = text.partition("<!-- written by `make test-matrix` -->\n")[2].partition("<!-- end -->")[0]
    assert table == pairs_table(known_pairs())
    assert {pair.name for pair in known_pairs()} <= {"oldest", "newest"}
    assert pairs_table(BOTH).count("\n") == 4
