"""The parts of the driver shim that need neither a follower nor Spark."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tfos_core import errors, events
from tfos_core.cluster_report import ClusterReport
from tfos_core.errors import ConfigError, FeedTimeoutError, NodeLostError, ReservationTimeoutError
from tfos_core.exit_codes import ExitCode, exit_code_of
from tfos_core.jobplan import DataPlan, FunctionRef, JobPlan
from tfos_core.restarts import RestartPolicy
from tfos_core.shim.data import fed_columns
from tfos_core.shim.errors import DriverLostError, SubmissionError, UserCodeError
from tfos_core.shim.job import Engine, Job
from tfos_core.shim.record import RecordWriter
from tfos_core.shim.redaction import Redactor
from tfos_core.shim.scratch import keep_export
from tfos_core.shim.status import RunState, RunStatus, read_status, write_status
from tfos_core.shim.usercode import build_args, load_data, load_function
from tfos_core.storage import StorageError

PROGRAM = """
import sys
VALUE = 3
def main_fun(args, ctx): ...
def load(spark, args): return ("loaded", spark, args.n)
def prepare(spark, df, args): return ("prepared", df)
def nothing(spark, df, args): return None
def leave(spark, df, args): sys.exit("bye")
def broken(spark, df, args): return 1 / 0
"""


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "shim_program.py").write_text(PROGRAM)
    (tmp_path / "shim_broken.py").write_text("import does_not_exist")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "shim_program", raising=False)
    return "shim_program"


def ref(function: str, module: str = "shim_program") -> FunctionRef:
    return FunctionRef(module=module, function=function, shown=f"apps/x.py:{function}")


class Reader:
    """spark.read, as far as it is used."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.calls: list[Any] = []

    @property
    def read(self) -> Reader:
        return self

    def options(self, **options: Any) -> Reader:
        self.calls.append(options)
        return self

    def schema(self, schema: str) -> Reader:
        self.calls.append(("schema", schema))
        return self

    def format(self, name: str) -> Reader:
        self.calls.append(name)
        return self

    def load(self, path: str) -> Any:
        if self.error is not None:
            raise self.error
        self.calls.append(path)
        return SimpleNamespace(select=lambda *columns: ("selected", columns))


class AnalysisException(Exception):  # noqa: N818 - pyspark's name
    pass


def test_a_mapping_becomes_a_namespace_and_a_list_an_argv() -> None:
    assert build_args({"a": 1}) == argparse.Namespace(a=1)
    assert build_args(("--a", "1")) == ["--a", "1"]


def test_a_missing_function_is_a_spec_error_that_lists_those_that_exist(program: str) -> None:
    with pytest.raises(ConfigError, match="has no function 'mainfun'") as caught:
        load_function(ref("mainfun"))
    assert "main_fun" in str(caught.value.hint)
    with pytest.raises(ConfigError, match="is a int, not a function"):
        load_function(ref("VALUE"))


def test_a_module_that_can_not_be_imported_is_user_code_with_its_traceback(program: str) -> None:
    with pytest.raises(UserCodeError, match="No module named 'does_not_exist'") as caught:
        load_function(ref("main_fun", "shim_broken"))
    assert "import does_not_exist" in caught.value.remote_traceback
    assert exit_code_of(caught.value) is ExitCode.USER_CODE


def test_data_is_read_with_options_and_columns(program: str) -> None:
    spark = Reader()
    plan = DataPlan(path="/d.csv", format="csv", options={"header": True}, columns=("a", "b"))
    assert load_data(spark, plan, None) == ("selected", ("a", "b"))
    assert spark.calls == [{"header": True}, "csv", "/d.csv"]


def test_a_schema_among_the_options_goes_to_the_reader(program: str) -> None:
    spark = Reader()
    load_data(spark, DataPlan(path="/d.csv", format="csv", options={"header": "true", "schema": "a int"}), None)
    assert spark.calls == [{"header": "true"}, ("schema", "a int"), "csv", "/d.csv"]


def test_only_mapped_columns_of_a_dataframe_are_fed() -> None:
    frame = SimpleNamespace(columns=["z", "a.b", "x"], select=lambda *columns: columns)
    assert fed_columns(frame, {"z": "t", "a.b": "u"}) == ("`a.b`", "`z`")
    assert fed_columns(frame, None) is frame
    assert fed_columns([1, 2], {"a": "t"}) == [1, 2]
    with pytest.raises(ConfigError, match="'nope'") as caught:
        fed_columns(frame, {"nope": "t"})
    assert "z, a.b, x" in str(caught.value.hint)


def test_a_file_system_that_is_down_is_no_mistake_in_the_spec(program: str) -> None:
    error = type("Py4JJavaError", (Exception,), {"__module__": "py4j.protocol"})
    spark = Reader(error("An error occurred while calling o1.load.\n: java.net.ConnectException: Connection refused\n\tat x"))
    with pytest.raises(StorageError, match="ConnectException: Connection refused") as caught:
        load_data(spark, DataPlan(path="hdfs://x/y", format="csv"), None)
    assert exit_code_of(caught.value) is ExitCode.INFRASTRUCTURE


def test_source_and_transform_get_what_the_spec_promises(program: str) -> None:
    spark, args = Reader(), argparse.Namespace(n=7)
    assert load_data(spark, DataPlan(source=ref("load")), args) == ("loaded", spark, 7)
    kind, data = load_data(spark, DataPlan(path="/d", format="csv", transform=ref("prepare")), args)
    assert kind == "prepared"
    assert hasattr(data, "select")


@pytest.mark.parametrize(("name", "text"), [("broken", "ZeroDivisionError"), ("leave", "SystemExit: bye"), ("nothing", "None")])
def test_a_transform_that_goes_wrong_is_user_code(program: str, name: str, text: str) -> None:
    with pytest.raises(UserCodeError, match=text) as caught:
        load_data(Reader(), DataPlan(path="/d", format="csv", transform=ref(name)), None)
    assert name == "nothing" or "shim_program.py" in caught.value.remote_traceback


def test_a_path_that_spark_can_not_read_is_a_spec_error_that_names_it(program: str) -> None:
    spark = Reader(AnalysisException("[PATH_NOT_FOUND] Path does not exist: hdfs://x. SQLSTATE: 42K03\nmore"))
    with pytest.raises(ConfigError, match=r"data.path 'hdfs://x' can not be read as csv: \[PATH_NOT_FOUND\]") as caught:
        load_data(spark, DataPlan(path="hdfs://x", format="csv"), None)
    assert "more" not in caught.value.message


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.InterruptedRunError("x"), 130),
        (ConfigError("x"), 2),
        (errors.EnvironmentCheckError("x"), 3),
        (ReservationTimeoutError("x"), 4),
        (SubmissionError("x"), 5),
        (FeedTimeoutError("x"), 6),
        (errors.NodeFailedError("x"), 1),
        (UserCodeError("x"), 1),
        (NodeLostError("x"), 7),
        (DriverLostError("x"), 7),
        (RuntimeError("x"), 70),
    ],
)
def test_every_kind_of_error_has_the_promised_exit_code(error: Exception, code: int) -> None:
    assert exit_code_of(error) == code


class Lines:
    def __init__(self) -> None:
        self.lines: list[str] = []

    def send(self, line: str) -> None:
        self.lines.append(line)


class Cluster:
    """A cluster that does what a test says."""

    def __init__(self, train: Exception | None = None, shutdown: Exception | None = None, exports: tuple[str, ...] = ()) -> None:
        self._train = train
        self._shutdown = shutdown
        self._exports = exports
        self.calls: list[str] = []

    def train(self, data: Any, num_epochs: int, feed_timeout: float, *, final: bool, first_epoch: int) -> None:
        assert final
        self.calls.append("train")
        if self._train is not None:
            raise self._train

    def shutdown(self, *, grace_secs: float, timeout: float) -> None:
        self.calls.append("shutdown")
        if self._shutdown is not None:
            raise self._shutdown

    def report(self) -> Any:
        return ClusterReport(
            exports=list(self._exports), timings={"feed_s": 1.0}, rows_per_node={"worker:0": 5}, steps_per_node={"worker:0": 2}
        )


class Case:
    def __init__(self, folder: Path, cluster: Cluster, *, max_restarts: int = 0, **engine: Any) -> None:
        self.folder = folder
        write_status(folder, RunStatus(run_id="r", name="n", state=RunState.SUBMITTING, started=1.0, master="here"))
        self.record = RecordWriter(folder, Redactor(["s3cret-value"]))
        self.channel = Lines()
        self.spark = SimpleNamespace(
            sparkContext=SimpleNamespace(applicationId="app-1", version="4", uiWebUrl=None), stop=lambda: None
        )
        self.options: Any = None

        def run_cluster(*args: Any, options: Any, **kwargs: Any) -> Cluster:
            self.options = options
            return cluster

        plan = JobPlan(
            run_id="r",
            name="n",
            run_folder=str(folder),
            channel=None,
            entrypoint=ref("main_fun"),
            args={"n": 1},
            input_mode="spark",
            num_nodes=1,
            data=DataPlan(source=ref("load")),
            max_restarts=max_restarts,
        )
        parts = {"start_spark": lambda plan: self.spark, "run_cluster": run_cluster} | engine
        self.job = Job(plan, engine=Engine(**parts), record=self.record, channel=self.channel, secrets={"S": "s3cret-value"})

    def run(self) -> RunStatus:
        code = self.job.run()
        self.record.close()
        status = read_status(self.folder)
        assert status.exit_code == code
        assert status.is_finished
        assert '"event":"result"' in self.channel.lines[-1]
        return status


class Unlucky(Cluster):
    """Loses an executor in its second epoch the first time, after the first was saved."""

    def __init__(self) -> None:
        super().__init__()
        self.starts: list[tuple[int, int]] = []
        self.case: Case | None = None

    def train(self, data: Any, num_epochs: int, feed_timeout: float, *, final: bool, first_epoch: int) -> None:
        assert self.case is not None
        options = self.case.options
        self.starts.append((options.restart_count, options.first_epoch))
        assert options.first_epoch == first_epoch
        if options.restart_count:
            return
        self.case.job.emit(events.NodeFailed(node="worker:0", host="h", executor_id=0, error="e", lost=True))
        raise NodeLostError("worker:0 was lost", None, "worker:0", "h")

    def report(self) -> Any:
        report = super().report()
        report.saved_epoch = 1
        return report


def test_a_job_that_loses_an_executor_starts_again_and_tells_so(
    program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RestartPolicy, "delay_s", lambda self, number: 0.01)
    cluster = Unlucky()
    case = cluster.case = Case(tmp_path, cluster, max_restarts=2)
    status = case.run()
    assert cluster.starts == [(0, 0), (1, 1)]
    assert (status.status, status.exit_code, status.first_failure) == ("success", 0, None)
    (restart,) = status.restarts
    assert (restart["number"], restart["node"], restart["first_epoch"]) == (1, "worker:0", 1)
    # What both attempts fed.
    assert (status.rows_fed, status.rows_per_node, status.steps_per_node) == (10, {"worker:0": 10}, {"worker:0": 4})
    kinds = [json.loads(line)["event"] for line in case.channel.lines if "event" in json.loads(line)]
    assert kinds.count("restarting") == 1
    assert kinds.count("result") == 1


def test_a_job_feeds_shuts_down_and_reports(program: str, tmp_path: Path) -> None:
    cluster = Cluster()
    case = Case(tmp_path, cluster)
    status = case.run()
    assert cluster.calls == ["train", "shutdown"]
    assert (status.status, status.rows_fed, status.application_id) == ("success", 5, "app-1")
    assert case.options.secrets == {"S": "s3cret-value"}
    assert {"spark_s", "load_s", "feed_s", "total_s"} <= status.timings.keys()


def test_a_failed_feed_still_shuts_the_cluster_down_and_keeps_its_own_error(program: str, tmp_path: Path) -> None:
    cluster = Cluster(train=FeedTimeoutError("no row for 5 s"), shutdown=NodeLostError("collateral"))
    status = Case(tmp_path, cluster).run()
    assert cluster.calls == ["train", "shutdown"]
    assert (status.exit_code, status.error) == (6, "no row for 5 s")


def test_an_unexplained_feed_error_is_explained_by_the_shutdown(program: str, tmp_path: Path) -> None:
    cluster = Cluster(train=RuntimeError("py4j"), shutdown=NodeLostError("worker:0 was lost"))
    assert Case(tmp_path, cluster).run().exit_code == 7


def test_secrets_in_an_error_are_masked_in_record_and_channel(program: str, tmp_path: Path) -> None:
    case = Case(tmp_path, Cluster(train=UserCodeError("bad s3cret-value", "s3cret-value", "tb s3cret-value")))
    status = case.run()
    assert status.error == "bad [secret]"
    assert all("s3cret-value" not in line for line in case.channel.lines)
    assert "s3cret-value" not in (tmp_path / "events.jsonl").read_text() + (tmp_path / "status.json").read_text()


def test_a_model_in_sparks_scratch_is_kept_where_the_result_says(program: str, tmp_path: Path) -> None:
    model = tmp_path / "spark" / "home" / "work" / "app" / "0" / "models" / "digits"
    model.mkdir(parents=True)
    (model / "saved_model.pb").write_text("x")
    status = Case(tmp_path, Cluster(exports=(f"file://{model}", "hdfs://nn/m"))).run()
    assert status.exports == (str(tmp_path / "exports" / "digits"), "hdfs://nn/m")
    assert (tmp_path / "exports" / "digits" / "saved_model.pb").read_text() == "x"


def test_exports_of_one_name_do_not_replace_each_other(tmp_path: Path) -> None:
    for number in range(3):
        source = tmp_path / "spark" / str(number) / "m"
        source.mkdir(parents=True)
        keep_export(tmp_path, str(source))
    assert sorted(path.name for path in (tmp_path / "exports").iterdir()) == ["m", "m-2", "m-3"]


def test_a_job_that_does_not_end_in_time_after_a_stop_is_ended(
    program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tfos_core.shim.job.STOP_TIMEOUT_S", 0.05)
    released = threading.Event()
    codes: list[int] = []

    def exit_process(code: int) -> None:
        codes.append(code)
        released.set()

    class Stuck(Cluster):
        def shutdown(self, *, grace_secs: float, timeout: float) -> None:
            case.job.stop("enough")
            assert released.wait(20)

    case = Case(tmp_path, Stuck(), exit_process=exit_process)
    status = case.run()
    assert codes == [130]
    assert (status.exit_code, status.error) == (130, "the run was stopped: enough")


@pytest.mark.parametrize(("lost", "first"), [(True, "driver"), (False, "worker:0")])
def test_a_dead_jvm_is_what_other_errors_are_put_down_to(program: str, tmp_path: Path, lost: bool, first: str) -> None:
    class Dying(Cluster):
        def train(self, *args: Any, **kwargs: Any) -> None:
            case.job.emit(events.NodeFailed(node="worker:0", host="h", executor_id=0, error="e", first=True, lost=lost))
            case.job.driver_lost()
            raise RuntimeError("Py4JNetworkError")

    case = Case(tmp_path, Dying())
    status = case.run()
    assert status.exit_code == 7
    assert "JVM" in status.error
    # What failed for a reason of its own before stays the first.
    assert status.first_failure is not None
    assert status.first_failure["node"] == first


def test_the_first_failure_of_a_node_is_in_the_result(program: str, tmp_path: Path) -> None:
    class Failing(Cluster):
        def train(self, *args: Any, **kwargs: Any) -> None:
            for node, first in (("worker:1", True), ("worker:0", False)):
                case.job.emit(events.NodeFailed(node=node, host="h", executor_id=0, error="e", first=first))
            raise errors.NodeFailedError("worker:1 failed", None, "worker:1")

    case = Case(tmp_path, Failing())
    status = case.run()
    assert status.first_failure is not None
    assert status.first_failure["node"] == "worker:1"


def test_the_death_of_the_parent_is_noticed_at_once() -> None:
    """The grandchild tells through a pipe that outlives its parent."""
    reading, writing = os.pipe()
    grandchild = (
        "import os, sys, threading\n"
        "from tfos_core.shim.watch import ParentWatch\n"
        "dead = threading.Event()\n"
        "with ParentWatch(dead.set):\n"
        "    print('ready', flush=True)\n"
        "    os.write(int(sys.argv[1]), b'dead' if dead.wait(30) else b'alive')\n"
    )
    parent = (
        "import subprocess, sys, time\n"
        "subprocess.Popen([sys.executable, '-c', sys.argv[2], sys.argv[1]], pass_fds=[int(sys.argv[1])])\n"
        "time.sleep(60)\n"
    )
    child = subprocess.Popen([sys.executable, "-c", parent, str(writing), grandchild], pass_fds=[writing], stdout=subprocess.PIPE)
    os.close(writing)
    assert child.stdout is not None
    assert child.stdout.readline() == b"ready\n"
    child.kill()
    child.wait(10)
    assert os.read(reading, 10) == b"dead"
    os.close(reading)
    child.stdout.close()


def test_the_shim_needs_the_standard_library_and_the_engine_only(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "import tfos_core.shim.job, tfos_core.shim.channel, tfos_core.shim.watch, tfos_core.shim.scratch\n"
        "wrong = {'tfos_cli', 'click', 'rich', 'pydantic', 'yaml', 'psutil', 'pyspark', 'tensorflow'} & set(sys.modules)\n"
        "sys.exit(len(wrong))\n"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=60, cwd=tmp_path).returncode == 0


def test_the_driver_program_runs_without_the_command_line_package(tmp_path: Path) -> None:
    """In cluster deploy mode only tfos_core is there; the program itself is a copied file."""
    import tfos_cli.driver

    copy = tmp_path / "tfos_driver.py"
    copy.write_bytes(Path(tfos_cli.driver.__file__).read_bytes())
    code = f"import runpy, sys; runpy.run_path({str(copy)!r}); sys.exit('tfos_cli' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60, cwd=tmp_path).returncode == 0
