"""What `make bench` runs, and how pages get its tables."""

from __future__ import annotations

import importlib

import pytest
from usage import parse_pss_kib, parse_ticks

everything = importlib.import_module("all")


def test_a_benchmark_is_chosen_by_its_name_or_by_one_case_of_it() -> None:
    assert list(everything.chosen(["control"])) == ["control"]
    assert everything.chosen(["feed/tuple10"]) == {"feed/tuple10": ("feed.py", "--shape", "tuple10")}
    assert everything.chosen(["feed"]) == {"feed": ("feed.py",)}
    assert set(everything.chosen([])) >= {"feed", "control", "launcher", "lifecycle", "tfrecords", "inference"}


def test_an_unknown_name_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(SystemExit, match=r"no benchmark feeds; there are feed, bounds"):
        everything.chosen(["feeds"])


def test_a_trial_with_a_few_rows_and_other_results_do_not_count() -> None:
    assert everything.counts({"benchmark": "feed", "settings": {"scale": 0.5}})
    assert everything.counts({"benchmark": "control", "settings": {}})
    assert not everything.counts({"benchmark": "feed", "settings": {"scale": 0.02}})
    assert not everything.counts({"benchmark": "soak", "settings": {}})


def test_a_block_replaces_the_one_before_and_leaves_the_rest() -> None:
    page = f"# Speed\n\n{everything.BEGIN}\nold \\1\n{everything.END}\nthe end\n"
    assert everything.with_block(page, "new \\1") == f"# Speed\n\n{everything.BEGIN}\n\nnew \\1\n\n{everything.END}\nthe end\n"


def test_cpu_time_is_read_whatever_a_process_is_called() -> None:
    stat = "12 (a (b) c d) S 1 2 3 4 5 6 7 8 9 10 100 20 3 4 20 0 1 0 0 0"
    assert parse_ticks(stat) == 127


def test_memory_that_is_shared_counts_once() -> None:
    assert parse_pss_kib("Rss: 900 kB\nPss:   512 kB\nPss_Anon: 100 kB\n") == 512
    assert parse_pss_kib("") == 0
