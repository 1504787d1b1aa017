"""Output that is there as a whole or not at all, counts of tasks, and results of programs."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tfos_core.errors import ConfigError, FeedError, NodeLostError
from tfos_core.events import Event, InferProgress
from tfos_core.inference.output import OutputFolder
from tfos_core.inference.program import PlainResults
from tfos_core.inference.report import TaskReport
from tfos_core.inference.watch import TaskWatch
from tfos_core.inference.writing import job_error
from tfos_core.saved_model.errors import RowRejectedError
from tfos_core.shim.errors import UserCodeError

DEADLINE = 30.0


class Place:
    """The interface of HadoopPath over a local folder; `broken` names can not be moved to."""

    broken: frozenset[str] = frozenset()

    def __init__(self, path: Path) -> None:
        self.path = path

    def __str__(self) -> str:
        return str(self.path)

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def parent(self) -> Place:
        return type(self)(self.path.parent)

    def child(self, name: str) -> Place:
        return type(self)(self.path / name)

    def exists(self) -> bool:
        return self.path.exists()

    def is_folder(self) -> bool:
        return self.path.is_dir()

    def files(self) -> list[str]:
        return sorted(str(file.relative_to(self.path)) for file in self.path.rglob("*") if file.is_file())

    def make_folder(self) -> None:
        self.path.mkdir(parents=True, exist_ok=True)

    def rename(self, target: Place) -> None:
        if target.exists() or target.name in self.broken:
            raise OSError(f"{self} could not be moved")
        self.path.rename(target.path)

    def remove(self) -> None:
        shutil.rmtree(self.path) if self.path.is_dir() else self.path.unlink(missing_ok=True)

    def touch(self) -> None:
        self.path.touch()


def folder(tmp_path: Path, mode: Any, broken: frozenset[str] = frozenset(), **written: str) -> OutputFolder:
    place = type("Place", (Place,), {"broken": broken})
    made = OutputFolder(place(tmp_path / "out"), place(tmp_path / ".out.run-1"), mode, "infer.output.path")
    made.check()
    for name, text in ({"_SUCCESS": ""} | written).items():
        file = tmp_path / ".out.run-1" / name.replace("__", "/").replace("1", "-1.x")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return made


def there(tmp_path: Path) -> dict[str, str]:
    return {str(file.relative_to(tmp_path)): file.read_text() for file in tmp_path.rglob("*") if file.is_file()}


def test_a_new_output_appears_with_the_folders_above_it(tmp_path: Path) -> None:
    folder(tmp_path, "error", part1="a").commit()
    assert there(tmp_path) == {"out/_SUCCESS": "", "out/part-1.x": "a"}


def test_what_exists_is_refused_at_the_start_and_at_the_end(tmp_path: Path) -> None:
    made = folder(tmp_path, "error", part1="a")
    (tmp_path / "out").mkdir()
    for act in (made.check, made.commit):
        with pytest.raises(ConfigError, match="exists"):
            act()
    made.discard()
    assert there(tmp_path) == {}


@pytest.mark.parametrize("mode", ["overwrite", "append"])
def test_a_file_is_no_output_folder(mode: str, tmp_path: Path) -> None:
    (tmp_path / "out").write_text("x")
    with pytest.raises(ConfigError, match="is a file"):
        folder(tmp_path, mode)


def old(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "part-0.x").write_text("old")
    (tmp_path / "out" / "_SUCCESS").touch()


def test_overwrite_replaces_and_append_adds(tmp_path: Path) -> None:
    old(tmp_path)
    folder(tmp_path, "append", part1="b", day__part1="c").commit()
    assert there(tmp_path) == {"out/_SUCCESS": "", "out/part-0.x": "old", "out/part-1.x": "b", "out/day/part-1.x": "c"}
    folder(tmp_path, "overwrite", part1="d").commit()
    assert there(tmp_path) == {"out/_SUCCESS": "", "out/part-1.x": "d"}


def test_an_append_that_fails_takes_back_what_it_moved(tmp_path: Path) -> None:
    old(tmp_path)
    made = folder(tmp_path, "append", frozenset({"z"}), part1="b", z="c")
    with pytest.raises(FeedError, match="could not be put in its place"):
        made.commit()
    made.discard()
    assert there(tmp_path) == {"out/_SUCCESS": "", "out/part-0.x": "old"}


def test_an_overwrite_that_fails_puts_the_old_output_back(tmp_path: Path) -> None:
    old(tmp_path)
    made = folder(tmp_path, "overwrite", frozenset({"out"}), part1="b")
    # the second move is the one that fails: the old one has stepped aside by then
    place = type(made.target)
    calls: list[str] = []

    def rename(self: Place, target: Place) -> None:
        calls.append(target.name)
        if len(calls) == 2:
            raise OSError("disk full")
        self.path.rename(target.path)

    place.rename = rename  # type: ignore[method-assign]
    with pytest.raises(FeedError, match="disk full"):
        made.commit()
    made.discard()
    assert there(tmp_path) == {"out/_SUCCESS": "", "out/part-0.x": "old"}


def report(partition: int, **values: Any) -> TaskReport:
    return TaskReport(**{"partition": partition, "rows": 10, "results": 9, "bad": 1, "stage": 4} | values)


def test_partitions_are_counted_once_and_progress_is_told() -> None:
    told: list[Event] = []
    arrived = threading.Event()

    def emit(event: Event) -> None:
        told.append(event)
        if isinstance(event, InferProgress) and event.partitions_done == 2:
            arrived.set()

    with TaskWatch(emit, lambda _: pytest.fail("nothing to cancel"), lambda stage: 8 if stage == 4 else 0) as watch:
        for partition in (0, 1, 1):
            watch.on_report(report(partition))
        assert arrived.wait(DEADLINE)
        assert (watch.rows, watch.results, watch.bad, watch.partitions) == (20, 18, 2, 2)
    last = told[-1]
    assert isinstance(last, InferProgress)
    assert (last.rows, last.rows_bad, last.partitions_done, last.partitions) == (20, 2, 2, 8)


def test_the_first_error_of_a_task_cancels_the_job_once() -> None:
    reasons: list[str] = []
    cancelled = threading.Event()

    def cancel(reason: str) -> None:
        reasons.append(reason)
        cancelled.set()

    with TaskWatch(lambda _: None, cancel, lambda _: 0) as watch:
        watch.on_report(report(0, error=TaskReport.describe(RowRejectedError("row 3 is bad"))))
        watch.on_report(report(1, error=TaskReport.describe(RowRejectedError("row 4 is bad"))))
        assert cancelled.wait(DEADLINE)
    assert reasons == ["row 3 is bad"]
    assert isinstance(watch.error, RowRejectedError)


class Row(tuple):
    def asDict(self) -> dict[str, Any]:  # noqa: N802 - pyspark's name
        return {"a": self[0]}


def test_results_of_a_program_become_plain_columns() -> None:
    results = [{"a": np.float32(1.5), "b": np.arange(3)}, Row([np.int64(7)]), np.int32(5), "text", None, b"raw", [np.float64(1), 2]]
    assert list(PlainResults()(results)) == [
        {"a": 1.5, "b": [0, 1, 2]},
        {"a": 7},
        {"result": 5},
        {"result": "text"},
        {"result": None},
        {"result": bytearray(b"raw")},
        {"result": [1.0, 2]},
    ]


class Py4JJavaError(Exception):
    pass


Py4JJavaError.__module__ = "py4j.protocol"


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("Job aborted: ExecutorLostFailure (executor 1 exited)", NodeLostError),
        ("java.io.EOFException: Python worker exited unexpectedly (crashed)", NodeLostError),
        ("PythonException: Traceback\n  File x\nValueError: no such column\n", UserCodeError),
        ("org.apache.hadoop.security.AccessControlException: Permission denied", FeedError),
    ],
)
def test_errors_of_spark_are_told_apart(text: str, kind: type[Exception]) -> None:
    found = job_error(Py4JJavaError(text))
    assert type(found) is kind


def test_other_errors_and_our_own_stay_as_they_are() -> None:
    for error in (RowRejectedError("x"), KeyboardInterrupt(), ZeroDivisionError()):
        assert job_error(error) is error
