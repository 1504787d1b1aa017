"""What a probe gathers on one machine: facts, imports in a fresh interpreter, TCP reach, paths that can be read and written."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tfos_core.gpu import GpuSurvey
from tfos_core.jobplan import FunctionRef, JobPlan, ProbePlan
from tfos_core.probe.imports import try_imports
from tfos_core.probe.machine import machine_facts, write_problem
from tfos_core.probe.places import NO_CLIENT, try_reading, try_writing
from tfos_core.probe.reach import Listener, reach, reach_all


@pytest.fixture
def listener() -> Iterator[Listener]:
    with Listener() as listening:
        yield listening


def test_facts_are_json_and_name_this_machine(tmp_path: Path) -> None:
    facts = machine_facts({"TMPDIR": str(tmp_path), "HADOOP_CONF_DIR": "/etc/hadoop"}, survey=GpuSurvey, folder=tmp_path)
    assert json.loads(json.dumps(facts)) == facts
    assert facts["host"] == socket.gethostname()
    assert facts["packages"]["numpy"]
    assert facts["folder"] == {"path": str(tmp_path), "free": facts["folder"]["free"], "problem": ""}
    assert facts["variables"] == {"HADOOP_CONF_DIR": "/etc/hadoop"}
    assert facts["limits"]["open_files"]


def test_values_of_variables_that_are_nobodys_business_are_not_told(tmp_path: Path) -> None:
    environ = {"PYTHONPATH": "/secret/place", "API_TOKEN": "abc"}
    assert machine_facts(environ, survey=GpuSurvey, folder=tmp_path)["variables"] == {"PYTHONPATH": "(set)"}


def test_a_folder_that_takes_no_file_says_why_and_one_that_does_keeps_none(tmp_path: Path) -> None:
    assert write_problem(tmp_path) == ""
    assert list(tmp_path.iterdir()) == []
    assert write_problem(tmp_path / "missing") == "No such file or directory"
    assert write_problem(Path("/proc/self"))


def test_a_listener_is_reached_and_its_clock_compared(listener: Listener) -> None:
    reached = reach("127.0.0.1", listener.port)
    assert reached.error == ""
    assert abs(reached.skew_s) <= reached.within_s + 0.01


def test_many_are_reached_at_once_and_each_has_its_own_answer(listener: Listener) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    answers = reach_all({"a": ("127.0.0.1", listener.port), "b": ("127.0.0.1", port), "c": ("no.such.host.invalid", 1)})
    assert answers["a"].error == ""
    assert answers["b"].error == "Connection refused"
    assert answers["c"].error
    assert reach_all({}) == {}


def test_a_port_where_nobody_answers_or_somebody_else_does_is_not_reached() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        assert reach("127.0.0.1", silent.getsockname()[1], timeout=0.2).error == "no answer within 0.2 s"
    with socket.create_server(("127.0.0.1", 0)) as other:

        def greet() -> None:
            connection, _ = other.accept()
            with connection:
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\n")

        thread = threading.Thread(target=greet)
        thread.start()
        assert reach("127.0.0.1", other.getsockname()[1]).error in ("something else answers there", "Connection reset by peer")
        thread.join(30)


def test_a_closed_listener_answers_no_more_and_a_stranger_does_not_stop_an_open_one(listener: Listener) -> None:
    with socket.create_connection(("127.0.0.1", listener.port)) as stranger:
        stranger.sendall(b"?")
        assert reach("127.0.0.1", listener.port).error == ""
    port = listener.port
    listener.close()
    listener.close()
    assert reach("127.0.0.1", port).error == "Connection refused"


def test_strangers_who_say_nothing_keep_nobody_from_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tfos_core.probe.reach._MOST_VISITORS", 20)
    with Listener() as listener, contextlib.ExitStack() as strangers:
        for number in range(100):
            stranger = strangers.enter_context(socket.create_connection(("127.0.0.1", listener.port)))
            stranger.sendall(b"?" * (number % 16))
        assert reach("127.0.0.1", listener.port).error == ""
        listener.close()
        assert not [thread for thread in threading.enumerate() if thread.name == "tfos-probe"]


def test_modules_are_imported_elsewhere_and_each_says_what_happened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "good.py").write_text("import sys\n__version__ = '1.2'\nprint('noise')\ndef main(args, ctx): ...\n")
    (tmp_path / "bad.py").write_text("import no_such_module_anywhere\n")
    (tmp_path / "quits.py").write_text("raise SystemExit(3)\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    found = try_imports(("good:main", "good:other", "bad", "quits"), os.environ)
    assert [found["good:main"]["error"], found["good:main"]["version"]] == ["", "1.2"]
    assert found["good:other"]["error"] == "it has no function other"
    assert found["bad"]["error"] == "ModuleNotFoundError: No module named 'no_such_module_anywhere'"
    assert found["quits"]["error"] == "SystemExit: 3"
    assert try_imports((), os.environ) == {}


def test_a_crash_while_importing_takes_only_what_comes_after_along(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "fine.py").write_text("")
    (tmp_path / "crashes.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGILL)\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    found = try_imports(("fine", "crashes"), os.environ)
    assert found["fine"]["error"] == ""
    assert "killed by signal 4" in found["crashes"]["error"]


def test_an_import_that_never_ends_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "waits.py").write_text("import threading\nthreading.Event().wait()\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert try_imports(("waits",), os.environ, timeout=1.0)["waits"]["error"] == "not imported within 1 s"


def test_paths_are_read_with_a_byte(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "part-0.csv").write_text("1,2")
    (tmp_path / "empty").mkdir()
    data = str(tmp_path / "data")
    found = try_reading([data, f"file://{data}", f"{data}/*.csv", f"{data}/*.json", str(tmp_path / "empty")])
    assert list(found.values()) == ["", "", "", "nothing is there", "no file is there"]


def test_paths_are_written_in_the_nearest_folder_and_nothing_stays(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    paths = [str(tmp_path), str(tmp_path / "a" / "b"), str(tmp_path / "file"), str(tmp_path / "file" / "below"), "/proc/self/x"]
    found = try_writing(paths)
    assert [found[path] for path in paths[:3]] == ["", "", ""]
    assert "is no folder" in found[paths[3]]
    assert found[paths[4]].startswith("/proc/self: ")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_path_that_python_has_no_client_for_is_told_from_one_that_fails() -> None:
    assert try_reading(["nosuchscheme://host/x"])["nosuchscheme://host/x"]
    assert NO_CLIENT.endswith(": ")


def test_a_plan_with_a_probe_survives_its_trip() -> None:
    plan = JobPlan(
        run_id="r",
        name="n",
        run_folder="/r",
        channel=None,
        entrypoint=FunctionRef(module="m", function="f", shown="m:f"),
        args={},
        input_mode="spark",
        num_nodes=1,
        probe=ProbePlan(entrypoint="m:f", reads=("/a",), writes=()),
    )
    assert JobPlan.from_json(plan.to_json()) == plan
