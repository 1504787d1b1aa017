"""The root of the command line: help that imports nothing, and the one boundary where errors end."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest

from tfos_cli import __version__, main
from tfos_cli.commands import COMMANDS
from tfos_cli.exit_codes import BROKEN_PIPE, ExitCode, exit_code_of
from tfos_cli.submit.errors import SubmitError
from tfos_cli.ui.console import Console, Verbosity
from tfos_core import errors

ROOT = Path(__file__).parents[3]


@pytest.fixture
def console() -> Console:
    return Console(stdout=io.StringIO(), stderr=io.StringIO(), environ={})


@pytest.fixture
def fail(monkeypatch: pytest.MonkeyPatch) -> Callable[[BaseException], None]:
    """Makes `tfos schema` raise."""

    def install(error: BaseException) -> None:
        def callback() -> None:
            raise error

        monkeypatch.setattr(main.LazyGroup, "get_command", lambda *_: click.Command("schema", callback=callback))

    return install


def out(console: Console) -> str:
    return console.stdout.getvalue()  # type: ignore[attr-defined]


def err(console: Console) -> str:
    return console.stderr.getvalue()  # type: ignore[attr-defined]


def python(code: str, *, timeout_s: float = 60) -> subprocess.CompletedProcess[str]:
    """Run code in a fresh interpreter that has our packages on its path."""
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=timeout_s, check=False
    )


def test_help_imports_neither_spark_nor_tensorflow_nor_what_commands_need() -> None:
    """Somebody who types `tfos --help` waits for every import; keep heavy ones inside the functions that use them."""
    code = (
        "import sys; from tfos_cli.main import run; code = run(['--help']); "
        "heavy = {'pyspark', 'tensorflow', 'keras', 'pydantic', 'rich', 'yaml', 'numpy', 'psutil', 'pyarrow'}; "
        "print('HEAVY', sorted(heavy & set(sys.modules)), code)"
    )
    done = python(code)
    assert done.stdout.splitlines()[-1] == "HEAVY [] 0", done.stderr
    assert "train" in done.stdout


def test_help_takes_less_than_three_tenths_of_a_second_of_cpu() -> None:
    code = "import os; from tfos_cli.main import run; run(['--help']); t = os.times(); print('CPU', t.user + t.system)"
    assert float(python(code).stdout.splitlines()[-1].removeprefix("CPU ")) < 0.3


@pytest.mark.parametrize("verb", COMMANDS)
def test_every_command_has_help_with_examples_and_the_summary_of_the_table(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run([verb, "--help"]) == 0
    shown = capsys.readouterr().out
    assert "Examples:" in shown
    assert shown.split("\n\n")[1].strip() == COMMANDS[verb]


def test_version_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["--version"]) == 0
    assert capsys.readouterr().out == f"tfos {__version__}\n"


def test_python_m_is_the_same_program() -> None:
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-m", "tfos_cli", "--version"], env=environment, capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == f"tfos {__version__}\n"


def test_an_unknown_command_is_answered_with_a_close_one(console: Console) -> None:
    assert main.run(["trian", "x.yaml"], console=console) == ExitCode.USAGE
    assert err(console).splitlines() == ["error: there is no command 'trian'; did you mean train?", "hint: Run 'tfos --help'."]
    assert out(console) == ""


def test_an_unknown_option_is_answered_with_a_close_one(console: Console) -> None:
    assert main.run(["train", "x.yaml", "--dry-rum"], console=console) == ExitCode.USAGE
    assert "--dry-run" in err(console)
    assert "hint: Run 'tfos train --help'." in err(console)


def test_a_missing_argument_is_a_usage_error(console: Console) -> None:
    assert main.run(["train"], console=console) == ExitCode.USAGE
    assert "missing argument 'SPEC'" in err(console)


def test_an_error_is_one_sentence_and_a_hint_on_stderr(console: Console, fail: Callable[[BaseException], None]) -> None:
    fail(errors.EnvironmentCheckError("there is no Java", "Install it."))
    assert main.run(["schema"], console=console) == ExitCode.ENVIRONMENT
    assert err(console) == "error: there is no Java\nhint: Install it.\n"
    assert out(console) == ""


def test_a_usage_error_with_json_is_an_object_on_stdout(console: Console) -> None:
    assert main.run(["runs", "--json", "--nope"], console=console) == ExitCode.USAGE
    error = json.loads(out(console))["error"]
    assert (error["type"], error["exit_code"]) == ("UsageError", 2)
    assert err(console) == ""


def test_the_fields_of_an_error_are_in_its_json() -> None:
    from tfos_cli.ui.errors import describe

    shown = describe(errors.NodeFailedError("worker:1 failed", "Look.", "worker:1", "host-a"), 1)["error"]
    assert (shown["type"], shown["message"], shown["hint"], shown["exit_code"]) == (
        "NodeFailedError",
        "worker:1 failed",
        "Look.",
        1,
    )
    assert shown["details"]["node"] == "worker:1"


def test_a_spec_error_as_json_says_where(console: Console, tmp_path: Path) -> None:
    spec = tmp_path / "job.yaml"
    spec.write_text("name: digits\nentrypoint: a.py:f\nnum_executers: 2\n")
    assert main.run(["train", str(spec), "--json"], console=console) == ExitCode.USAGE
    error = json.loads(out(console))["error"]
    assert error["details"]["line"] == 3
    assert error["details"]["problems"][0]["field"] == "num_executers"
    assert err(console) == ""


def test_a_traceback_is_shown_with_debug_only(console: Console, fail: Callable[[BaseException], None]) -> None:
    fail(ZeroDivisionError("division by zero"))
    assert main.run(["schema"], console=console) == ExitCode.INTERNAL
    assert "Traceback" not in err(console)
    assert "--debug" in err(console)
    assert main.run(["--debug", "schema"], console=console) == ExitCode.INTERNAL
    assert "Traceback" in err(console)


def test_an_interruption_ends_with_130(console: Console, fail: Callable[[BaseException], None]) -> None:
    fail(KeyboardInterrupt())
    assert main.run(["schema"], console=console) == ExitCode.INTERRUPTED
    assert err(console) == "error: interrupted\n"


def test_a_file_that_can_not_be_written_is_named(console: Console, fail: Callable[[BaseException], None]) -> None:
    fail(PermissionError(13, "Permission denied", "/root/x"))
    assert main.run(["schema"], console=console) == ExitCode.ENVIRONMENT
    assert err(console) == "error: /root/x: Permission denied\n"


@pytest.mark.parametrize("platform", ["win32", "cygwin"])
def test_windows_is_refused_at_once_with_the_reason(platform: str, console: Console) -> None:
    assert main.run(["--help"], console=console, platform=platform) == ExitCode.ENVIRONMENT
    assert "does not run on Windows" in err(console)
    assert "WSL" in err(console)


def test_a_closed_pipe_is_silent() -> None:
    code = (
        "import os, sys; r, w = os.pipe(); os.close(r); os.dup2(w, 1)\n"
        "from tfos_cli.main import run\n"
        "code = run(['--help']); sys.stdout.flush(); print(code, file=sys.stderr)"
    )
    done = python(code)
    assert done.stderr == f"{BROKEN_PIPE}\n"
    assert done.returncode == 0


@pytest.mark.parametrize(
    ("argv", "verbosity"),
    [
        (["-q", "train", "nope.yaml"], Verbosity.QUIET),
        (["train", "nope.yaml", "-q"], Verbosity.QUIET),
        (["train", "-v", "nope.yaml"], Verbosity.VERBOSE),
        (["train", "nope.yaml", "--debug"], Verbosity.DEBUG),
    ],
)
def test_how_much_is_said_may_stand_before_or_behind_the_verb(argv: list[str], verbosity: Verbosity, console: Console) -> None:
    assert main.run(argv, console=console) == ExitCode.USAGE
    assert console.verbosity is verbosity


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.NodeFailedError(), 1),
        (errors.ClusterStateError(), 1),
        (errors.ConfigError(), 2),
        (errors.TopologyError(), 2),
        (errors.EnvironmentCheckError(), 3),
        (errors.ReservationTimeoutError(), 4),
        (errors.DuplicateNodeError(), 4),
        (SubmitError(), 5),
        (errors.FeedTimeoutError(), 6),
        (errors.ResultCountError(), 6),
        (errors.NodeLostError(), 7),
        (errors.ChannelClosedError(), 7),
        (errors.InterruptedRunError(), 130),
        (KeyboardInterrupt(), 130),
        (OSError(), 3),
        (RuntimeError(), 70),
    ],
)
def test_the_exit_codes_are_those_of_the_contract(error: BaseException, code: int) -> None:
    assert exit_code_of(error) == code


class TestConsole:
    """What goes where, and in which colour."""

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    @pytest.fixture
    def terminal(self) -> Iterator[io.StringIO]:
        yield self.Terminal()

    def test_colour_is_for_terminals(self, terminal: io.StringIO) -> None:
        Console(stderr=terminal, environ={}).error("no")
        assert terminal.getvalue() == "\x1b[1;31merror:\x1b[0m no\n"

    @pytest.mark.parametrize("environ", [{"NO_COLOR": "1"}, {"TERM": "dumb"}, {"NO_COLOR": "1", "FORCE_COLOR": "1"}])
    def test_colour_can_be_switched_off(self, environ: dict[str, str], terminal: io.StringIO) -> None:
        Console(stderr=terminal, environ=environ).error("no")
        assert terminal.getvalue() == "error: no\n"

    def test_a_file_gets_colour_when_it_is_forced(self, console: Console) -> None:
        assert "\x1b[" in Console(stderr=console.stderr, environ={"FORCE_COLOR": "1"}).styled("x", "1")
        assert console.styled("x", "1") == "x"

    def test_results_and_everything_else_do_not_mix(self, console: Console) -> None:
        console.result("42")
        console.note("working")
        console.warning("careful", "Look.")
        assert out(console) == "42\n"
        assert err(console) == "working\nwarning: careful\nhint: Look.\n"

    def test_quiet_leaves_warnings_and_errors(self, console: Console) -> None:
        console.verbosity = Verbosity.QUIET
        console.note("working")
        console.detail("details")
        console.error("broken")
        assert err(console) == "error: broken\n"

    def test_details_are_for_those_who_asked(self, console: Console) -> None:
        console.detail("one")
        console.verbosity = Verbosity.VERBOSE
        console.detail("two")
        assert err(console) == "two\n"
