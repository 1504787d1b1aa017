"""Tiers and the fixtures that every tier may use; imports neither pyspark nor TensorFlow."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

import pytest
from testbed.commandline import Outcome, TfosProcess, run_fresh, run_here
from testbed.leaks import assert_nothing_left, take_snapshot
from testbed.session import Session

TESTS = Path(__file__).parent
TIERS = ("unit", "spark", "slow")
session_key = pytest.StashKey[Session]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[session_key] = Session.start()


def pytest_unconfigure(config: pytest.Config) -> None:
    if session_key in config.stash:
        config.stash[session_key].end()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The folder is the tier."""
    for item in items:
        tier = item.path.relative_to(TESTS).parts[0]
        if tier in TIERS:
            item.add_marker(tier)


class RunLine(Protocol):
    """Runs a line that starts with `tfos` and compares its exit code."""

    def __call__(self, line: str | Sequence[str], exit_code: int = 0, *, fresh: bool = False, timeout_s: float = 60) -> Outcome: ...


@pytest.fixture(scope="session")
def testbed_session(pytestconfig: pytest.Config) -> Session:
    """The mark and the temporary folder of this run."""
    return pytestconfig.stash[session_key]


@pytest.fixture
def tfos_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A private TFOS_HOME that does not exist yet."""
    home = tmp_path / "tfos-home"
    monkeypatch.setenv("TFOS_HOME", str(home))
    return home


@pytest.fixture
def run_line(tfos_home: Path, tmp_path: Path) -> RunLine:
    """Runs a line in `tmp_path` with a private TFOS_HOME: in this process, or with `fresh=True` in one of its own."""

    def run(line: str | Sequence[str], exit_code: int = 0, *, fresh: bool = False, timeout_s: float = 60) -> Outcome:
        if fresh:
            outcome = run_fresh(line, environment=dict(os.environ), folder=tmp_path, timeout_s=timeout_s)
        else:
            outcome = run_here(line, environment=dict(os.environ), folder=tmp_path)
        return outcome.check(exit_code)

    return run


@pytest.fixture
def tfos_process(tfos_home: Path, tmp_path: Path) -> Iterator[Callable[..., TfosProcess]]:
    """Starts lines in `tmp_path` whose events can be waited for; what still runs at the end is killed."""
    started: list[TfosProcess] = []

    def start(line: str | Sequence[str], **environment: str) -> TfosProcess:
        started.append(TfosProcess(line, environment=os.environ | environment, folder=tmp_path))
        return started[-1]

    yield start
    for process in started:
        process.close()


@pytest.fixture
def nothing_left(testbed_session: Session) -> Iterator[None]:
    """Fails the test when a process, a listening socket or a file of tfos is there at the end that was not at the start.

    Request it first, so that it looks after the other fixtures are gone.
    """
    before = take_snapshot(testbed_session.mark, [testbed_session.own_folder])
    yield
    assert_nothing_left(before)
