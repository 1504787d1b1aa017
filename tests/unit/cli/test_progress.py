"""What the renderers write, and on which stream."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from dataclasses import replace

import pytest

from tfos_cli.ui.board import Board, draw
from tfos_cli.ui.console import Console, Verbosity
from tfos_cli.ui.outcome import duration
from tfos_cli.ui.progress import JsonLines, PlainLines, choose_renderer, is_worth_showing, plain_line, printable
from tfos_cli.ui.run_view import RunView, apply
from tfos_core import events


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def console(*, stderr: io.StringIO | None = None, verbosity: Verbosity = Verbosity.NORMAL) -> Console:
    made = Console(stdout=io.StringIO(), stderr=stderr or io.StringIO(), environ={"NO_COLOR": "1", "TERM": "xterm"})
    made.verbosity = verbosity
    return made


def text_of(made: Console) -> tuple[str, str]:
    assert isinstance(made.stdout, io.StringIO)
    assert isinstance(made.stderr, io.StringIO)
    return made.stdout.getvalue(), made.stderr.getvalue()


def feed(ts: float, rows: int = 5) -> tuple[float, events.FeedProgress]:
    event = events.FeedProgress(
        epoch=0, epochs=3, partitions_done=1, partitions=4, rows=rows, rows_per_s=7.0, rows_per_node={"worker:0": rows}
    )
    return ts, event


SERVER = events.ReservationServerStarted(host="h", port=1, expected=("chief:0", "worker:0"), timeout_s=600)


def test_the_renderer_follows_the_console() -> None:
    assert isinstance(choose_renderer(console(), no_progress=False), PlainLines)
    assert isinstance(choose_renderer(console(stderr=Terminal()), no_progress=False), Board)
    assert isinstance(choose_renderer(console(stderr=Terminal()), no_progress=True), PlainLines)
    asked = console(stderr=Terminal())
    asked.json = True
    assert isinstance(choose_renderer(asked, no_progress=False), JsonLines)


def test_rich_is_imported_for_the_live_view_only() -> None:
    code = "import sys, tfos_cli.follower, tfos_cli.commands.train; sys.exit('rich' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0


def test_progress_of_a_feed_is_said_at_most_every_ten_seconds() -> None:
    made = console()
    renderer = PlainLines(made)
    for second in range(100, 125):
        renderer.on_event("", *feed(float(second)), RunView())
    assert text_of(made)[1].count("feeding epoch 1 of 3") == 3


def test_epochs_from_caches_are_told_apart() -> None:
    _, fed = feed(0.0)
    assert plain_line(fed).startswith("feeding epoch 1 of 3: 5 rows")
    assert plain_line(replace(fed, epoch=1, cached=True)).startswith("replaying epoch 2 of 3: 5 rows")
    ended = events.FeedFinished(epoch=1, epochs=3, partitions=4, rows=5, seconds=1.0, rows_per_node={}, cached=True)
    assert plain_line(ended).startswith("replayed epoch 2 of 3: 5 rows of 4 partitions in 1.0 s")


def test_only_the_first_node_is_shown_and_without_the_chatter_of_libraries() -> None:
    made = console()
    view = apply(RunView(), 1.0, SERVER)
    PlainLines(made).on_node_lines("chief:0", ["accuracy 0.97", "I0000 00:00:1795 port.cc:153] oneDNN", ""], view)
    PlainLines(made).on_node_lines("worker:0", ["from a worker"], view)
    assert text_of(made)[0] == "chief:0 | accuracy 0.97\n"


def test_verbose_shows_every_node() -> None:
    made = console(verbosity=Verbosity.VERBOSE)
    PlainLines(made).on_node_lines("worker:0", ["from a worker"], apply(RunView(), 1.0, SERVER))
    assert "worker:0 | from a worker" in text_of(made)[0]


def test_sparks_stderr_is_shown_with_v_only() -> None:
    quiet, talkative = console(), console(verbosity=Verbosity.VERBOSE)
    for made in (quiet, talkative):
        PlainLines(made).on_driver_line("stderr", "WARN something")
        PlainLines(made).on_driver_line("stdout", "a print")
    assert text_of(quiet) == ("a print\n", "")
    assert text_of(talkative) == ("a print\n", "WARN something\n")


def test_json_keeps_stdout_for_events_and_passes_unknown_kinds_on() -> None:
    made = console()
    renderer = JsonLines(made)
    renderer.on_driver_line("stdout", "a print")
    renderer.on_node_lines("worker:0", ["a line"], RunView())
    renderer.on_event('{"event":"news"}', 1.0, None, RunView())
    renderer.finish(RunView())
    assert [json.loads(line) for line in text_of(made)[0].splitlines()] == [{"event": "news"}]


def test_a_good_result_is_on_stdout_with_model_and_timings() -> None:
    made = console()
    result = events.Result(
        status="success",
        exit_code=0,
        timings={"spark_s": 4.0, "total_s": 75.0},
        rows_fed=10,
        rows_per_node={"worker:0": 10},
        exports=("/models/digits",),
    )
    PlainLines(made).finish(apply(RunView(run_id="r-1", name="digits"), 1.0, result))
    stdout, stderr = text_of(made)
    assert "success: digits finished in 1 min 15 s" in stdout
    assert "/models/digits" in stdout
    assert "spark 4.0 s" in stdout
    assert "tfos logs r-1" in stderr


def test_a_bad_result_is_on_stderr_with_the_end_of_a_long_traceback() -> None:
    made = console()
    failure = {"node": "worker:1", "host": "h", "error": "ValueError: no", "traceback": "\n".join(f"frame {n}" for n in range(99))}
    result = events.Result(status="failed", exit_code=1, error="worker:1 failed", hint="fix it", first_failure=failure)
    PlainLines(made).finish(apply(RunView(run_id="r-1"), 1.0, result))
    stdout, stderr = text_of(made)
    assert stdout == ""
    assert "error: worker:1 failed" in stderr
    assert "hint: fix it" in stderr
    assert "first failure: worker:1 on h: ValueError: no" in stderr
    assert "frame 98" in stderr
    assert "frame 10\n" not in stderr
    assert "tfos logs r-1 --node worker:1" in stderr


@pytest.mark.parametrize("kind", sorted(events.EVENT_TYPES))
def test_every_event_is_a_line_or_deliberately_none(kind: str) -> None:
    silent = {"result", "warning"}
    assert bool(plain_line(_example(kind))) is (kind not in silent)


def test_the_board_shows_nodes_missing_ones_and_the_feed() -> None:
    view = RunView(run_id="r", name="digits", master="yarn", started=90.0)
    waiting = events.ReservationWaiting(missing=("worker:0",), waited_s=5, timeout_s=600, reason="only 1 executor")
    for ts, event in ((100.0, SERVER), (105.0, waiting), feed(106.0, 1234)):
        view = apply(view, ts, event)
    shown = rendered(view, 130.0)
    for text in ("digits on yarn", "chief:0", "missing", "for 30 of 600 s", "only 1 executor", "epoch 1 of 3", "1,234", "7 rows/s"):
        assert text in shown, shown


def test_a_big_board_shows_first_what_is_wrong() -> None:
    names = tuple(f"worker:{index}" for index in range(50))
    view = apply(RunView(), 1.0, events.ReservationServerStarted(host="h", port=1, expected=names, timeout_s=1))
    view = apply(view, 2.0, events.NodeFailed(node="worker:49", host="h", executor_id=1, error="broke"))
    shown = rendered(view, 3.0)
    assert "worker:49" in shown
    assert "and 30 more" in shown


def test_a_board_lives_and_goes_and_output_of_the_user_stays_on_a_redirected_stdout() -> None:
    made = console(stderr=Terminal())
    board = Board(made)
    view = apply(RunView(run_id="r", name="digits"), 1.0, SERVER)
    board.start(view)
    board.on_event("", 1.0, SERVER, view)
    board.on_driver_line("stdout", "a [bold]print[/bold]")
    board.tick(view, 2.0)
    board.finish(apply(view, 3.0, events.Result(status="success", exit_code=0)))
    stdout, stderr = text_of(made)
    assert stdout.startswith("a [bold]print[/bold]\n")
    assert "chief:0" in stderr


def test_a_line_of_a_node_can_not_move_the_cursor() -> None:
    assert printable("1/2 \r2/2 done\r") == "2/2 done"
    assert printable("a\x1b[2Jb\x07") == "ab"
    assert not is_worth_showing("2026-11-29 13:41:47.210699: I tensorflow/core/platform.cc:1] hello")
    assert is_worth_showing("2026-11-29 step 5")


def test_durations_are_for_people() -> None:
    assert [duration(seconds) for seconds in (0.04, 59.9, 65, 3600, 7800)] == [
        "0.0 s",
        "59.9 s",
        "1 min 5 s",
        "1 h 0 min",
        "2 h 10 min",
    ]


def rendered(view: RunView, now: float) -> str:
    stream = io.StringIO()
    made = console(stderr=stream).rich()
    made.width = 120
    made.print(draw(view, now))
    return stream.getvalue()


def _example(kind: str) -> events.Event:
    values = {
        "submitted": {"run_id": "r", "name": "n", "master": "m", "run_folder": "f"},
        "driver_started": {"application_id": "a", "host": "h", "pid": 1, "spark_version": "4"},
        "reservation_server": {"host": "h", "port": 1, "expected": ("worker:0",), "timeout_s": 1.0},
        "node_registered": {"node": "n", "executor_id": 1, "host": "h", "port": 1, "pid": 1, "registered": 1, "expected": 1},
        "reservation_waiting": {"missing": ("worker:0",), "waited_s": 1.0, "timeout_s": 2.0},
        "cluster_ready": {"addresses": {}, "seconds": 1.0},
        "tensorboard": {"node": "n", "url": "u"},
        "tensorboard_kept": {"node": "n", "url": "u", "seconds": 9},
        "feed_progress": {
            "epoch": 0,
            "epochs": 1,
            "partitions_done": 0,
            "partitions": 1,
            "rows": 0,
            "rows_per_s": 0.0,
            "rows_per_node": {},
        },
        "feed_finished": {"epoch": 0, "epochs": 1, "partitions": 1, "rows": 0, "seconds": 0.0, "rows_per_node": {}},
        "infer_progress": {"partitions_done": 1, "partitions": 2, "rows": 3, "rows_per_s": 1.0, "rows_bad": 1},
        "infer_finished": {"partitions": 2, "rows": 3, "rows_out": 2, "rows_bad": 1, "seconds": 1.0, "output": "o"},
        "node_finished": {"node": "n", "seconds": 1.0},
        "node_failed": {"node": "n", "host": "h", "executor_id": 1, "error": "e"},
        "warning": {"id": "i", "message": "m"},
        "restarting": {"number": 1, "max_restarts": 3, "error": "worker:1 failed", "first_epoch": 2, "delay_s": 2.0},
        "stream_progress": {"batch": 1, "rows": 2, "rows_total": 2, "seconds": 0.1},
        "stream_finished": {"batches": 1, "rows": 2, "reason": "r"},
        "shutdown_started": {"reason": "r"},
        "shutdown_finished": {"seconds": 1.0},
        "result": {"status": "success", "exit_code": 0},
    }
    return events.EVENT_TYPES[kind](**values[kind])
