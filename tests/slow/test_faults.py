"""Every way in which a running job may break, through `tfos train` on a Standalone cluster, in both input modes.

Each test is a row of the table that is printed at the end and written to `benchmarks/results/faults.{json,md}`: what was broken,
when that was noticed, the exit code, what the user is told, and what is left behind.
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest
from testbed.commandline import TfosProcess
from testbed.fault_runs import FaultRun, take_note, write_job
from testbed.fault_table import NONE_LEFT, Fault, FaultRow, FaultTable
from testbed.faults import Flood, executor_jvm, tensorboard_process, tensorflow_process, worker_daemon
from testbed.mounts import filled, small_disk, why_no_small_disk
from testbed.network import TwoHosts, why_no_hosts
from testbed.processes import kill_all, read_process
from testbed.session import Session
from testbed.standalone import StandaloneCluster, WorkerOptions

from tfos_core.exit_codes import ExitCode
from tfos_core.reservation.tcp import HEARTBEAT_S

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results"
MODES = ("spark", "tensorflow")
#: From the fault, or from the deadline, until the event that tells of it.
NOTICE_S = 5.0
#: Until `tfos` has ended as well: Spark needs its time, on a loaded machine more of it.
END_S = 20.0
#: Programs that are slow to start on a loaded machine must have begun when their deadline passes.
FEED_TIMEOUT_S = 8.0
DISK_MB = 256

Start = Callable[..., FaultRun]


@pytest.fixture(scope="module")
def table() -> Iterator[FaultTable]:
    made = FaultTable(RESULTS)
    yield made
    if made.rows:
        print(f"\n{made.markdown()}")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneCluster]:
    """A Master and two Workers, whose executors' folders are on small disks where those can be had."""
    folders = [tmp_path_factory.mktemp(f"disk-{index}") for index in range(2)]
    with ExitStack() as stack:
        if why_no_small_disk() is None:
            for folder in folders:
                stack.enter_context(small_disk(folder, DISK_MB))
        yield stack.enter_context(StandaloneCluster([WorkerOptions(work=folder) for folder in folders]))


@pytest.fixture
def start(tfos_process: Callable[..., TfosProcess], tmp_path: Path, testbed_session: Session, cluster: StandaloneCluster) -> Start:
    """Starts a job that goes wrong, or is to be broken."""

    def run(fault: str, mode: str, title: Fault, *settings: str) -> FaultRun:
        spec = write_job(tmp_path, fault, mode)
        before = take_note(testbed_session)
        sets = [part for setting in settings for part in ("--set", setting)]
        process = tfos_process(["tfos", "train", spec, "--json", "--master", cluster.url, *sets])
        return FaultRun(process=process, folder=tmp_path, fault=title, mode=mode, before=before, sparks=(cluster.folder,))

    return run


def check(table: FaultTable, row: FaultRow, code: ExitCode, *texts: str, node: str = r"worker:1 on 127\.0\.0\.1") -> None:
    """Into the table first: a row that is not as it should be is what one wants to see."""
    table.add(row)
    assert row.exit_code == code, row
    for text in texts:
        assert re.search(text, row.message), row
    assert re.fullmatch(node, row.first_failure), row
    assert row.leftovers == NONE_LEFT, row
    assert row.noticed_s is None or row.noticed_s < NOTICE_S, row
    assert row.ended_s is None or row.ended_s < END_S, row


NODE = r"^worker:1 \(executor \d on 127\.0\.0\.1\) failed: "
RAISED = "ValueError: no column 'label'"

OWN_FAULTS = {
    "raise before": (Fault.RAISES_BEFORE, RAISED),
    "raise while": (Fault.RAISES_WHILE, RAISED),
    "raise after": (Fault.RAISES_AFTER, RAISED),
    "exit": (Fault.CALLS_EXIT, r"sys\.exit\(3\) was called"),
    "exit code": (Fault.EXIT_CODE, "the process of worker:1 exited with code 137; 137 usually means .* too much memory"),
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("fault", list(OWN_FAULTS))
def test_a_program_that_goes_wrong(table: FaultTable, start: Start, fault: str, mode: str) -> None:
    title, text = OWN_FAULTS[fault]
    run = start(fault, mode, title)
    run.await_fault()
    check(table, run.finish(), ExitCode.USER_CODE, NODE + text)


SIGNALS = {
    signal.SIGTERM: (Fault.SIGNAL, r"killed by signal 15 \(SIGTERM\)"),
    signal.SIGKILL: (Fault.MEMORY, r"killed by signal 9 \(SIGKILL\); .* out of memory"),
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("number", list(SIGNALS))
def test_a_process_that_is_killed(table: FaultTable, start: Start, number: signal.Signals, mode: str) -> None:
    title, text = SIGNALS[number]
    run = start("stay", mode, title)
    run.await_steps()
    victim = tensorflow_process(run.supervisor().pid)
    run.broken_now()
    os.kill(victim.pid, number)
    check(table, run.finish(), ExitCode.USER_CODE, NODE + ".*" + text)


def test_a_function_that_takes_no_rows(table: FaultTable, start: Start) -> None:
    run = start("hang", "spark", Fault.HANG, f"feed_timeout={FEED_TIMEOUT_S:g}")
    run.await_fault()
    row = after_deadline(run.finish(), FEED_TIMEOUT_S, "feed_timeout")
    place = r"it is in wait_for_a_lock_that_nobody_gives_back \(app\.py:\d+\)"
    check(
        table,
        row,
        ExitCode.FEEDING,
        rf"^worker:1 \(executor \d on 127\.0\.0\.1\) consumed no row for {FEED_TIMEOUT_S:g} seconds .*" + place,
    )
    assert_the_stack_is_told(run)


@pytest.mark.parametrize(
    ("mode", "since", "seconds"),
    [
        # Where nothing is fed the shutdown begins with the cluster: it waits for the functions to return.
        ("tensorflow", "cluster_ready", 12.0),
        # Instances have the time from the start of the job, which has to wait for executors too.
        ("parallel", "driver_started", 25.0),
    ],
)
def test_a_function_that_does_not_return(table: FaultTable, start: Start, mode: str, since: str, seconds: float) -> None:
    run = start("hang", mode, Fault.HANG, f"shutdown_timeout={seconds:g}")
    run.broken_at = run.process.wait_for_event(since)["ts"]
    row = after_deadline(run.finish(), seconds, "shutdown_timeout")
    place = r"it is in wait_for_a_lock_that_nobody_gives_back \(app\.py:\d+\)"
    text = rf"^worker:1 \(.*127\.0\.0\.1\) did not end within {seconds:g} s( of shutdown)?; " + place
    check(table, row, ExitCode.USER_CODE, text)
    assert_the_stack_is_told(run)


def after_deadline(row: FaultRow, seconds: float, name: str) -> FaultRow:
    """The same row, counted from the deadline."""
    assert row.noticed_s is not None and row.ended_s is not None
    noticed, ended = round(row.noticed_s - seconds, 2), round(row.ended_s - seconds, 2)
    return replace(row, noticed_s=noticed, ended_s=ended, deadline=f"after {name} of {seconds:g} s")


def assert_the_stack_is_told(run: FaultRun) -> None:
    failure = run.result(run.process.wait())["first_failure"]
    assert re.search(r'File ".*app\.py", line \d+, in main_fun\n.*in go_wrong\n.*in wait_for_a_lock', failure["traceback"])
    (log,) = (run.folder / "tfos-home" / "runs").glob("*/nodes/worker-1.log")
    assert "[tfos] the stacks of worker:1, because" in log.read_text()


@pytest.mark.parametrize("mode", MODES)
def test_a_supervisor_that_is_killed(table: FaultTable, start: Start, mode: str) -> None:
    run = start("stay", mode, Fault.SUPERVISOR)
    run.await_steps()
    processes = run.all_processes()
    run.broken_now()
    kill_all([run.supervisor()])
    text = NODE + "worker:1 went away without a word: its supervisor, its host or the network was lost"
    check(table, run.finish(also_gone=processes), ExitCode.INFRASTRUCTURE, text)


@pytest.mark.parametrize("mode", MODES)
def test_an_executor_that_is_killed(table: FaultTable, start: Start, mode: str) -> None:
    run = start("stay", mode, Fault.EXECUTOR)
    run.await_steps()
    victim = executor_jvm(run.supervisor().pid)
    run.broken_now()
    kill_all([victim])
    check(table, run.finish(), ExitCode.INFRASTRUCTURE, NODE + r"the executor of worker:1 died \(JVM process \d+ ended\)")


@pytest.mark.parametrize("mode", MODES)
def test_a_worker_daemon_that_is_killed(table: FaultTable, start: Start, cluster: StandaloneCluster, mode: str) -> None:
    run = start("stay", mode, Fault.WORKER_DAEMON)
    run.await_steps()
    victim = worker_daemon(run.supervisor().pid)
    run.broken_now()
    kill_all([victim])
    try:
        check(table, run.finish(), ExitCode.INFRASTRUCTURE, NODE + "the executor of worker:1 died")
    finally:
        cluster.replace_worker(victim.pid)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("victim", [Fault.DRIVER, Fault.SUBMIT])
def test_a_driver_that_is_killed(table: FaultTable, start: Start, victim: Fault, mode: str) -> None:
    run = start("stay", mode, victim)
    run.await_steps()
    driver = read_process(run.process.wait_for_event("driver_started")["pid"])
    assert driver is not None
    # In client mode spark-submit is the JVM, and the driver's Python its child.
    process = driver if victim is Fault.DRIVER else read_process(driver.parent)
    assert process is not None
    if victim is Fault.SUBMIT:
        # A JVM that is killed can not remove its scratch.
        run.sparks += (Path(os.environ["SPARK_LOCAL_DIRS"]),)
    nodes = run.all_processes()
    run.broken_now()
    kill_all([process])
    # Every node has to notice and to end by itself.
    row = run.finish(also_gone=nodes)
    check(table, row, ExitCode.INFRASTRUCTURE, "the (Spark )?driver .*(died|ended)", node="driver on .+")


@pytest.mark.parametrize("mode", MODES)
def test_a_flood_of_strangers(table: FaultTable, start: Start, mode: str) -> None:
    run = start("train", mode, Fault.FLOOD)
    server = run.process.wait_for_event("reservation_server")
    run.broken_now()
    with Flood(server["host"], server["port"]) as flood:
        run.await_steps()
        run.go_on()
        row = run.finish(notice="warning")
    counted = f"job done beside {flood.connections} connections of strangers"
    check(table, replace(row, noticed_s=None, ended_s=None, message=counted), ExitCode.SUCCESS, node="")
    assert flood.connections > 100


@pytest.mark.parametrize("mode", MODES)
def test_a_disk_that_is_full(table: FaultTable, start: Start, cluster: StandaloneCluster, mode: str) -> None:
    title = Fault.DISK
    reason = why_no_small_disk()
    if reason is not None:
        table.skipped[title] = reason
        pytest.skip(reason)
    run = start("write", mode, title)
    run.await_steps()
    _, folder = run.noted(1)
    disk = next(parent for parent in folder.parents if parent.is_mount())
    with filled(disk):
        run.broken_now()
        row = run.finish()
    check(table, row, ExitCode.USER_CODE, NODE + r"OSError: \[Errno 28\] No space left on device")


@pytest.mark.parametrize("mode", MODES)
def test_a_tensorboard_that_dies(table: FaultTable, start: Start, mode: str) -> None:
    run = start("train", mode, Fault.TENSORBOARD, "tensorboard=true")
    run.await_steps()
    victim = tensorboard_process(run.supervisor(0).pid)
    run.broken_now()
    kill_all([victim])
    run.process.wait_for_event("warning", 30, where=lambda event: event["id"] == "tensorboard")
    run.go_on()
    row = run.finish(notice="warning")
    check(table, row, ExitCode.SUCCESS, r"TensorBoard of worker:0 on 127\.0\.0\.1 was killed by signal 9", node="")


@pytest.fixture(scope="module")
def hosts() -> Iterator[TwoHosts]:
    reason = why_no_hosts()
    if reason is not None:
        pytest.skip(reason)
    with TwoHosts() as pair:
        yield pair


@pytest.fixture(scope="module")
def two_hosts(hosts: TwoHosts) -> Iterator[StandaloneCluster]:
    """The Master and a Worker on the first host, a Worker on the second."""
    first = hosts.hosts[0]
    workers = [WorkerOptions(host=host.address, prefix=host.prefix) for host in hosts.hosts]
    with StandaloneCluster(workers, host=first.address, prefix=first.prefix) as started:
        yield started


@pytest.mark.parametrize("mode", MODES)
def test_a_network_that_is_cut(
    table: FaultTable, hosts: TwoHosts, two_hosts: StandaloneCluster, testbed_session: Session, tmp_path: Path, mode: str
) -> None:
    first, second = hosts.hosts
    spec = write_job(tmp_path, "stay", mode)
    before = take_note(testbed_session)
    environment = {name: value for name, value in os.environ.items() if name != "SPARK_LOCAL_IP"}
    environment["TFOS_HOME"] = str(tmp_path / "tfos-home")
    line = ["tfos", "train", spec, "--json", "--master", two_hosts.url]
    with TfosProcess(line, environment=environment, folder=tmp_path, prefix=first.prefix) as process:
        title = Fault.NETWORK
        run = FaultRun(process=process, folder=tmp_path, fault=title, mode=mode, before=before, sparks=(two_hosts.folder,))
        run.await_steps()
        (index,) = (index for index in range(2) if run.registration(index)["host"] == second.address)
        beyond = [process for process in run.all_processes() if process.environment.get("SPARK_LOCAL_IP") == second.address]
        run.broken_now()
        hosts.cut()
        try:
            # Spark's own processes beyond the cut end when they can hear of it.
            row = run.finish(also_gone=beyond, before_looking=hosts.mend, left_s=60.0)
        except BaseException:
            hosts.mend()
            raise
    row = after_deadline(row, HEARTBEAT_S, "the heartbeat")
    text = rf"^worker:{index} \(executor \d on {second.address}\) failed: .* went away .* the network was lost"
    check(table, row, ExitCode.INFRASTRUCTURE, text, node=f"worker:{index} on {second.address}")
