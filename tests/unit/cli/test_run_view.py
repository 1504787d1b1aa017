"""The state of a run as a fold of its events."""

from __future__ import annotations

from pathlib import Path

from tfos_cli.ui.run_view import NodePhase, Phase, RunView, StreamView, apply, replay
from tfos_core import events

SUBMITTED = events.Submitted(run_id="r-1", name="digits", master="yarn", run_folder="/runs/r-1")
SERVER = events.ReservationServerStarted(host="h", port=1, expected=("chief:0", "worker:0"), timeout_s=600)
CHIEF = events.NodeRegistered(node="chief:0", executor_id=0, host="a", port=5, pid=6, registered=1, expected=2)
WORKER = events.NodeRegistered(node="worker:0", executor_id=1, host="b", port=5, pid=6, registered=2, expected=2)
READY = events.ClusterReady(addresses={"chief:0": "a:5", "worker:0": "b:5"}, seconds=2.5)


def progress(rows: int, done: int = 1, epoch: int = 0) -> events.FeedProgress:
    return events.FeedProgress(
        epoch=epoch,
        epochs=2,
        partitions_done=done,
        partitions=4,
        rows=rows,
        rows_per_s=10.0,
        rows_per_node={"chief:0": rows, "worker:0": 0},
    )


def finished(epoch: int) -> events.FeedFinished:
    return events.FeedFinished(
        epoch=epoch, epochs=2, partitions=4, rows=400, seconds=2.0, rows_per_node={"chief:0": 200, "worker:0": 200}
    )


def failed(node: str, *, first: bool = True, lost: bool = False) -> events.NodeFailed:
    return events.NodeFailed(node=node, host="b", executor_id=1, error=f"{node} broke", first=first, lost=lost)


def after(*happened: events.Event) -> RunView:
    view = RunView()
    for second, event in enumerate(happened):
        view = apply(view, 100.0 + second, event)
    return view


def test_a_stream_counts_batches_and_its_last_word_is_that_it_ended() -> None:
    view = after(
        SUBMITTED, SERVER, CHIEF, WORKER, READY, progress(5), events.StreamProgress(batch=1, rows=5, rows_total=5, seconds=1)
    )
    assert (view.phase, view.feed, view.stream) == (Phase.STREAMING, None, StreamView(batches=1, rows=5))
    view = apply(view, 200.0, events.StreamFinished(batches=2, rows=9, reason="r"))
    assert (view.phase, view.stream) == (Phase.FED, StreamView(batches=2, rows=9, has_ended=True))


def test_a_good_run_goes_through_its_phases() -> None:
    driver = events.DriverStarted(application_id="app-1", host="d", pid=1, spark_version="4.3.0")
    steps = [
        (SUBMITTED, Phase.SUBMITTING),
        (driver, Phase.DRIVER),
        (SERVER, Phase.RESERVING),
        (CHIEF, Phase.RESERVING),
        (WORKER, Phase.RESERVING),
        (READY, Phase.READY),
        (progress(10), Phase.FEEDING),
        (finished(0), Phase.FEEDING),
        (finished(1), Phase.FED),
        (events.ShutdownStarted(reason="done"), Phase.STOPPING),
        (events.ShutdownFinished(seconds=0.1), Phase.DOWN),
        (events.Result(status="success", exit_code=0, rows_fed=800), Phase.FINISHED),
    ]
    view = RunView()
    for second, (event, phase) in enumerate(steps):
        view = apply(view, 100.0 + second, event)
        assert view.phase is phase, event
    assert (view.started, view.updated, view.rows_fed) == (100.0, 111.0, 800)


def test_the_board_names_who_is_there_who_is_missing_and_sparks_reason() -> None:
    waiting = events.ReservationWaiting(missing=("worker:0",), waited_s=5, timeout_s=600, reason="1 of 2 executors")
    view = after(SUBMITTED, SERVER, CHIEF, waiting)
    assert view.missing == ("worker:0",)
    assert view.registered == 1
    assert view.waiting_reason == "1 of 2 executors"
    assert view.reserving_since == 101.0
    chief = view.node("chief:0")
    assert chief is not None
    assert (chief.phase, chief.host, chief.executor_id) == (NodePhase.REGISTERED, "a", 0)


def test_a_ready_cluster_waits_for_nobody() -> None:
    view = after(SERVER, CHIEF, WORKER, READY)
    assert view.missing == ()
    assert view.waiting_reason == ""
    assert {node.phase for node in view.nodes} == {NodePhase.RUNNING}


def test_epochs_are_counted_from_one_and_rows_are_per_node() -> None:
    view = after(SERVER, READY, progress(30, done=3, epoch=1))
    assert view.feed is not None
    assert (view.feed.epoch, view.feed.epochs, view.feed.partitions_done, view.feed.rows) == (2, 2, 3, 30)
    chief = view.node("chief:0")
    assert chief is not None
    assert chief.rows == 30
    assert after(SERVER, finished(0), finished(1)).rows_fed == 800


def test_the_first_failure_stays_the_first() -> None:
    view = after(SERVER, READY, failed("worker:0"), failed("chief:0", first=False, lost=True))
    assert view.first_failure is not None
    assert view.first_failure.node == "worker:0"
    assert [node.phase for node in view.nodes] == [NodePhase.LOST, NodePhase.FAILED]


def test_a_restart_begins_a_new_cluster_and_the_failure_is_no_longer_that_of_the_run() -> None:
    restart = events.Restarting(number=1, max_restarts=3, error="worker:0 was killed", node="worker:0", first_epoch=1)
    view = after(SUBMITTED, SERVER, CHIEF, WORKER, READY, finished(0), failed("worker:0"), restart)
    assert (view.phase, view.nodes, view.first_failure, view.feed) == (Phase.RESTARTING, (), None, None)
    assert [one.number for one in view.restarts] == [1]
    again = apply(view, 200.0, SERVER)
    assert (again.phase, again.missing) == (Phase.RESERVING, ("chief:0", "worker:0"))
    assert apply(again, 201.0, CHIEF).missing == ("worker:0",)


def test_a_node_that_nobody_announced_is_added() -> None:
    assert [node.name for node in after(failed("worker:7")).nodes] == ["worker:7"]


def test_the_first_node_is_the_chief_when_there_is_one() -> None:
    assert after(SERVER).first_node == "chief:0"
    alone = events.ReservationServerStarted(host="h", port=1, expected=("worker:0", "worker:1"), timeout_s=1)
    assert after(alone).first_node == "worker:0"


def test_applying_an_event_leaves_the_old_state_alone() -> None:
    before = after(SERVER)
    apply(before, 1.0, CHIEF)
    assert before.missing == ("chief:0", "worker:0")


def test_a_file_is_replayed_past_unknown_kinds_and_a_line_that_is_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    lines = [events.to_line(SUBMITTED, ts=5.0), '{"v":9,"event":"news"}', events.to_line(SERVER, ts=6.0), '{"v":1,"ev']
    path.write_text("\n".join(lines))
    view = replay(path)
    assert (view.name, view.phase, len(view.nodes)) == ("digits", Phase.RESERVING, 2)
    assert replay(tmp_path / "none") == RunView()


def test_a_cluster_of_a_thousand_nodes_is_folded_quickly() -> None:
    names = tuple(f"worker:{index}" for index in range(1000))
    view = after(events.ReservationServerStarted(host="h", port=1, expected=names, timeout_s=1))
    for name in names:
        view = apply(
            view,
            1.0,
            events.NodeRegistered(node=name, executor_id=1, host="a", port=5, pid=6, registered=1, expected=1000),
        )
    assert view.missing == ()
