"""What the submitting machine makes of a run in cluster deploy mode: places, lines, answers of YARN. Nothing is started."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tfos_cli.remote.applications import ApplicationReport, YarnApplications, applications_of, parse_yarn_report, reason_of_yarn
from tfos_cli.remote.hadoop_conf import conf_folder, default_filesystem, resource_manager, setting, user_name
from tfos_cli.remote.link import address_towards
from tfos_cli.remote.local_copy import LocalCopy, read_position
from tfos_cli.remote.place import RemoteRun
from tfos_cli.remote.sequencer import Sequencer
from tfos_cli.remote.verdict import error_of
from tfos_cli.runs import RunStore
from tfos_cli.spec.masters import MasterKind
from tfos_cli.submit.errors import SubmitError
from tfos_core import events
from tfos_core.errors import ConfigError, InterruptedRunError
from tfos_core.shim.errors import DriverLostError
from tfos_core.shim.redaction import Redactor
from tfos_core.shim.status import RunState, RunStatus

REMOTE = RemoteRun(record="hdfs://nn/r", manager=MasterKind.YARN, master="yarn", conf="/etc/hadoop", spark_home="/opt/spark")
REPORT = """\
Application Report :
\tApplication-Id : application_1795987100_0003
\tApplication-Name : digits-20261129-213000-abcd
\tState : FAILED
\tFinal-State : FAILED
\tTracking-URL : http://vm:8088/cluster/app/application_1795987100_0003
\tDiagnostics : Application application_1795987100_0003 failed 1 times due to AM Container exited with  exitCode: -104
Failing this attempt.Diagnostics: [2026-11-29 21:30:00.1]Container [pid=7,containerID=c] is running 9B beyond the 'PHYSICAL' limit.
Dump of the process-tree for c :
\t|- PID PPID
\tUnmanaged Application : false
"""


def site(folder: Path, name: str, **values: str) -> None:
    lines = "".join(f"<property><name>{key}</name><value>{value}</value></property>" for key, value in values.items())
    (folder / name).write_text(f"<configuration>{lines}</configuration>")


def test_hadoops_settings_are_read_from_its_files(tmp_path: Path) -> None:
    assert conf_folder({}) is None
    assert conf_folder({"HADOOP_CONF_DIR": "", "YARN_CONF_DIR": str(tmp_path)}) == tmp_path
    assert default_filesystem(tmp_path) == "file:///"
    site(tmp_path, "core-site.xml", **{"fs.defaultFS": "hdfs://nn:8020"})
    site(tmp_path, "yarn-site.xml", **{"yarn.resourcemanager.hostname": "rm.example"})
    assert (default_filesystem(tmp_path), resource_manager(tmp_path)) == ("hdfs://nn:8020", "rm.example")
    site(tmp_path, "yarn-site.xml", **{"yarn.resourcemanager.ha.rm-ids": "a,b", "yarn.resourcemanager.address.b": "rmb:8032"})
    assert resource_manager(tmp_path) == "rmb"
    (tmp_path / "core-site.xml").write_text("<broken")
    assert setting(tmp_path, "fs.defaultFS") is None


def test_the_user_is_who_hadoop_takes_him_for() -> None:
    assert user_name({"HADOOP_USER_NAME": "h"}, {}) == "h"
    assert user_name({"HADOOP_USER_NAME": "h"}, {"spark.kerberos.principal": "me/host@REALM"}) == "me"


def test_what_is_known_of_a_run_is_kept_beside_its_record(tmp_path: Path) -> None:
    assert RemoteRun.read(tmp_path) is None
    REMOTE.write(tmp_path)
    assert RemoteRun.read(tmp_path) == REMOTE
    (tmp_path / "remote.json").write_text("{}")
    with pytest.raises(ConfigError):
        RemoteRun.read(tmp_path)


@pytest.mark.parametrize(
    ("steps", "given"),
    [
        ([("live", 1), ("live", 2)], [1, 2]),
        ([("live", 2), ("live", 1)], [1, 2]),
        ([("live", 3), ("record", [1, 2]), ("record", [1, 2, 3])], [1, 2, 3]),
        ([("record", [1, 2]), ("live", 2), ("live", 3)], [1, 2, 3]),
        ([("record", [2, 5]), ("live", 4), ("live", 6)], [2, 5, 6]),
        ([("live", 3), ("live", 6), ("record", [4, 5])], [3, 4, 5, 6]),
    ],
)
def test_every_line_is_given_once_and_in_order(steps: list[tuple[str, object]], given: list[int]) -> None:
    sequencer, found = Sequencer(), []
    for _, what in steps:
        if isinstance(what, int):
            found += sequencer.from_live(what, str(what))
        elif isinstance(what, list):
            found += sequencer.from_record([(number, str(number)) for number in what])
    assert found == [str(number) for number in given]
    assert not sequencer.has_gap
    assert sequencer.position == given[-1] + 1


def test_a_copy_of_the_record_takes_lines_of_every_kind_and_nothing_that_makes_no_sense(tmp_path: Path) -> None:
    run = RunStore(folder=tmp_path).create("job", master="yarn")
    told = RunStatus(run_id="x", name="x", state=RunState.RUNNING, started=1.0, application_id="application_1_2", rows_fed=7)
    lines = [
        events.to_line(events.ShutdownStarted(reason="hunter2hunter2")).replace("hunter2hunter2", "[secret]"),
        json.dumps({"op": "output", "node": "worker:0", "lines": ["a", "hunter2hunter2"]}),
        json.dumps({"op": "status", "status": told.to_dict()}),
        json.dumps({"op": "file", "node": "worker:0", "path": "events.out.tfevents.1", "offset": 0, "data": "YWJj"}),
        json.dumps({"op": "file", "node": "worker:0", "path": "../../escaped", "offset": 0, "data": "YWJj"}),
        json.dumps({"op": "output", "node": "../worker", "lines": ["a"]}),
        json.dumps({"op": "status", "status": {"state": "no such"}}),
        json.dumps({"op": "unheard"}),
        json.dumps({"op": "document", "name": "probe.json", "data": {"a": 1}}),
        json.dumps({"op": "document", "name": "status.json", "data": {}}),
        "no JSON",
        "[1]",
    ]
    with LocalCopy(run.folder, Redactor(["hunter2hunter2"])) as copy:
        shown = copy.take(lines, 11)
        assert shown == lines[:2]
        assert not copy.is_finished
    assert read_position(run.folder) == 11
    assert run.events_path.read_text().count("\n") == 1
    assert (run.nodes_folder / "worker-0.log").read_text() == "a\n[secret]\n"
    status = run.status()
    assert (status.run_id, status.application_id, status.rows_fed, status.state) == (run.id, "application_1_2", 7, RunState.RUNNING)
    assert status.follower is not None, "who follows it is known here"
    assert [path.read_text() for path in (run.folder / "tensorboard").rglob("*") if path.is_file()] == ["abc"]
    assert not list(tmp_path.rglob("escaped"))
    assert json.loads((run.folder / "probe.json").read_text()) == {"a": 1}


def test_a_report_of_yarn_is_read() -> None:
    report = parse_yarn_report(REPORT)
    assert report is not None
    assert (report.state, report.outcome, report.is_over) == ("FAILED", "FAILED", True)
    assert reason_of_yarn(report.diagnostics) == "Container [pid=7,containerID=c] is running 9B beyond the 'PHYSICAL' limit."
    running = parse_yarn_report(REPORT.replace("\tState : FAILED", "\tState : RUNNING"))
    assert running is not None
    assert not running.is_over
    killed = parse_yarn_report(REPORT.replace("\tState : FAILED", "\tState : KILLED"))
    assert killed is not None
    assert killed.outcome == "KILLED"
    assert parse_yarn_report("Application with id 'x' doesn't exist in RM") is None


@pytest.mark.parametrize(
    ("outcome", "diagnostics", "started", "stopped", "kind", "said"),
    [
        ("FAILED", REPORT, True, "", DriverLostError, "killed for memory"),
        ("FAILED", "exitCode: 127", False, "", SubmitError, "before its driver had started"),
        ("FAILED", "exitCode: 1", True, "", DriverLostError, "did not say how the job went"),
        ("SUCCEEDED", "", True, "", DriverLostError, "(SUCCEEDED)"),
        ("KILLED", "by user", True, "", InterruptedRunError, "was killed"),
        ("KILLED", "by user", False, "SIGINT", InterruptedRunError, "stopped by SIGINT"),
    ],
)
def test_an_end_that_the_driver_did_not_explain_has_a_kind(
    outcome: str, diagnostics: str, started: bool, stopped: str, kind: type[Exception], said: str
) -> None:
    report = ApplicationReport(state="FINISHED", outcome=outcome, diagnostics=diagnostics)
    error = error_of("application_1_1", report, why="", driver_started=started, stop_reason=stopped)
    assert type(error) is kind
    assert said in str(error)
    assert error_of("application_1_1", ApplicationReport(state="RUNNING"), why="", driver_started=started) is None


def test_an_application_is_found_in_what_spark_submit_says() -> None:
    applications = applications_of(REMOTE, {})
    assert isinstance(applications, YarnApplications)
    assert applications.find_id("INFO YarnClientImpl: Submitted application application_17_0003") == "application_17_0003"
    assert applications.find_id("INFO Client: Requesting a new application from cluster") is None


def test_a_manager_that_can_not_be_asked_says_nothing(tmp_path: Path) -> None:
    applications = YarnApplications(REMOTE, {"JAVA_HOME": str(tmp_path)})
    assert applications.report("application_1_1") is None
    assert not applications.kill("application_1_1")


def test_the_address_that_the_cluster_sees_is_that_of_the_route() -> None:
    assert address_towards("127.0.0.1") == "127.0.0.1"
    assert address_towards("") == ""
    assert address_towards("no such host ü") == ""
