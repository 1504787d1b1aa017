"""Where feed tasks find their node."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tfos_core.errors import FeedError, FeedTimeoutError, NodeFailedError, TfosError
from tfos_core.feed import rendezvous
from tfos_core.feed.failures import from_wire, to_wire
from tfos_core.feed.progress import ProgressReader, ProgressWriter
from tfos_core.feed.rendezvous import Descriptor


def environ(tmp_path: Path, local_dirs: str = "/a") -> dict[str, str]:
    return {"TMPDIR": str(tmp_path), "SPARK_LOCAL_DIRS": local_dirs}


def descriptor(folder: Path, pid: int, started: int | None = None) -> Descriptor:
    started = rendezvous.process_start_time(pid) if started is None else started
    return Descriptor(
        generation="g",
        node="worker:0",
        socket=str(folder / "node.sock"),
        progress=str(folder / "progress"),
        supervisor_pid=pid,
        supervisor_started=started,
    )


def test_every_executor_has_its_own_private_folder(tmp_path: Path) -> None:
    one, other = (rendezvous.create_folder(environ(tmp_path, name)) for name in ("/a", "/b"))
    assert one != other
    assert one == rendezvous.executor_folder(environ(tmp_path, "/a"))
    assert [path.stat().st_mode & 0o777 for path in (one, one.parent)] == [0o700, 0o700]


def test_a_folder_that_others_can_enter_is_refused(tmp_path: Path) -> None:
    (tmp_path / f"tfos-{os.getuid()}").mkdir(mode=0o755)
    with pytest.raises(FeedError, match="mode 755"):
        rendezvous.create_folder(environ(tmp_path))


def test_a_link_in_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    (tmp_path / f"tfos-{os.getuid()}").symlink_to(elsewhere)
    with pytest.raises(FeedError, match="is not a folder that only user"):
        rendezvous.create_folder(environ(tmp_path))


def test_a_descriptor_comes_back(tmp_path: Path) -> None:
    folder = rendezvous.create_folder(environ(tmp_path))
    written = descriptor(folder, os.getpid())
    written.write(folder)
    assert Descriptor.read(folder) == written
    assert written.is_alive()


def test_an_executor_without_a_node_says_so(tmp_path: Path) -> None:
    with pytest.raises(FeedError, match="has no node that takes rows"):
        Descriptor.read(rendezvous.executor_folder(environ(tmp_path)))
    with pytest.raises(FeedError, match="SPARK_LOCAL_DIRS is not set"):
        rendezvous.executor_folder({})


def test_a_path_too_long_for_a_socket_says_what_to_set(tmp_path: Path) -> None:
    folder = tmp_path / ("x" * 120)
    folder.mkdir()
    with pytest.raises(FeedError, match="can not be made") as caught:
        rendezvous.listen(folder)
    assert "TMPDIR" in str(caught.value.hint)


def test_the_sweep_removes_what_a_dead_supervisor_left_and_nothing_else(tmp_path: Path) -> None:
    dead, recycled, alive, starting, contained = (rendezvous.create_folder(environ(tmp_path, name)) for name in "abcde")
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait(20)
    descriptor(dead, ended.pid, 1).write(dead)
    descriptor(recycled, os.getpid(), 1).write(recycled)
    descriptor(alive, os.getpid()).write(alive)
    # A pid of another container says nothing here.
    replace(descriptor(contained, ended.pid, 1), pid_namespace="pid:[1]").write(contained)
    other = dead.parent / "cli"
    other.mkdir()
    assert set(rendezvous.sweep(environ(tmp_path))) == {dead, recycled}
    assert alive.exists()
    assert starting.exists()
    assert contained.exists()
    assert other.exists()


def test_progress_is_read_without_the_writer(tmp_path: Path) -> None:
    times = iter([5.0, 9.0])
    writer = ProgressWriter(tmp_path / "progress", clock=lambda: next(times))
    reader = ProgressReader(tmp_path / "progress")
    assert reader.last_consumed() == 0.0
    writer.advance(3)
    assert reader.last_consumed() == 5.0
    writer.advance(3)
    assert reader.last_consumed() == 9.0
    writer.close()
    reader.close()
    assert ProgressReader(tmp_path / "missing").last_consumed() == 0.0


@pytest.mark.parametrize(
    "error",
    [
        NodeFailedError("boom", "hint", "worker:0", "h", 3, 1, None, "Traceback", ("a", "b")),
        FeedTimeoutError("slow", None, "worker:1", 4),
        TfosError("plain"),
    ],
)
def test_errors_cross_the_socket_whole(error: TfosError) -> None:
    back = from_wire(to_wire(error))
    assert type(back) is type(error)
    assert back.args == error.args


def test_what_is_not_ours_becomes_a_feed_error() -> None:
    assert isinstance(from_wire(to_wire(OSError("x"))), FeedError)
    assert isinstance(from_wire({"type": "os.system", "message": "x"}), FeedError)


def test_the_supervisors_part_needs_the_standard_library_only() -> None:
    code = """if True:
        import sys, tfos_core.feed.refusal, tfos_core.feed.rendezvous
        print([name for name in ('numpy', 'pyarrow', 'pyspark') if name in sys.modules])
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True)
    assert done.stdout.strip() == "[]"
