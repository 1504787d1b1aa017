"""The root of the command line: a lazy table of commands, global options, and the one place where errors become exit codes."""

from __future__ import annotations

import contextlib
import gc
import importlib
import io
import os
import sys
import traceback
from collections.abc import Sequence
from typing import NoReturn, TextIO

import click
from click.shell_completion import CompletionItem

from tfos_cli import __version__, completion, logs
from tfos_cli.commands import COMMANDS
from tfos_cli.exit_codes import BROKEN_PIPE, ExitCode, exit_code_of
from tfos_cli.options import verbosity_options
from tfos_cli.ui import errors as error_view
from tfos_cli.ui.console import Console
from tfos_core.errors import ConfigError, EnvironmentCheckError

__all__ = ("cli", "main", "run")

_STDERR = 2
#: Objects made and not freed between two collections; Python's own is 700.
_GC_THRESHOLD = 50_000


class UsageError(ConfigError):
    """The command line does not say what to do; `usage` is the line that shows how."""

    def __init__(self, message: str = "", hint: str | None = None, usage: str = "") -> None:
        super().__init__(message, hint)
        self.args = (message, hint, usage)
        self.usage = usage


class LazyGroup(click.Group):
    """A group that imports the module of a command when the command is used."""

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Commands by the table, again without importing one."""
        if incomplete.startswith("-"):
            return super().shell_complete(ctx, incomplete)
        return [CompletionItem(verb, help=summary) for verb, summary in COMMANDS.items() if verb.startswith(incomplete)]

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The verbs in the order of the table, which is the order in which a newcomer needs them."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import `tfos_cli.commands.<verb>` and take its `command`."""
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"tfos_cli.commands.{cmd_name.replace('-', '_')}")
        command: click.Command = module.command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the summaries of the table, without importing a command."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command, or say which ones are close."""
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            raise click.UsageError(f"there is no command {args[0]!r}{_did_you_mean(args[0])}", ctx=ctx)
        return super().resolve_command(ctx, args)


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
@click.version_option(__version__, prog_name="tfos", message="%(prog)s %(version)s")
@verbosity_options
def cli() -> None:
    """Train TensorFlow models, and use them, on the Spark cluster you already run.

    \b
    Examples:
      tfos train job.yaml                          on this machine, executors as processes
      tfos train job.yaml --master spark://h:7077  on a cluster
      tfos train job.yaml --dry-run                show what would be submitted
    """


def main() -> NoReturn:
    """The console script."""
    # Nearly everything that imports make stays until the end, and collecting looks at all of it again: a tenth of the start.
    gc.set_threshold(_GC_THRESHOLD)
    _prepare_streams()
    code = run(sys.argv[1:])
    # The interpreter would look once more at everything that was ever imported: 50 ms in which nothing is left to do.
    gc.freeze()
    sys.exit(code)


def run(argv: Sequence[str], *, console: Console | None = None, platform: str = sys.platform) -> int:
    """Run one command line and return its exit code; the one boundary where errors end.

    Args:
        argv: the words after `tfos`.
        platform: `sys.platform`, an argument so that a refusal can be tested elsewhere.
    """
    console = console or Console()
    # Before click has parsed anything, so that an error of parsing comes as JSON as well.
    console.json = "--json" in argv
    console.debug = "--debug" in argv
    try:
        _refuse_windows(platform)
        if completion.VARIABLE in os.environ:
            return completion.answer(cli, os.environ)
        return _invoke(list(argv), console)
    except BrokenPipeError:
        _silence(console.stdout)
        return BROKEN_PIPE
    except (KeyboardInterrupt, Exception) as error:  # noqa: BLE001 - the boundary: everything ends here
        return _report(console, error)


def _invoke(argv: list[str], console: Console) -> int:
    try:
        with cli.make_context("tfos", argv, obj=console) as context:
            logs.configure(console)
            value = cli.invoke(context)
            return value if isinstance(value, int) else ExitCode.SUCCESS
    except click.exceptions.Exit as exit_:
        return exit_.exit_code
    except click.Abort:
        raise KeyboardInterrupt from None
    except click.ClickException as error:
        raise _as_usage_error(error) from error


def _as_usage_error(error: click.ClickException) -> UsageError:
    """Click's complaint in the words of our errors: one sentence, and where to read on."""
    context = getattr(error, "ctx", None)
    message = error.format_message().strip().rstrip(".")
    path = context.command_path if context else "tfos"
    return UsageError(message[:1].lower() + message[1:], f"Run '{path} --help'.", context.get_usage() if context else "")


def _report(console: Console, error: BaseException) -> int:
    code = exit_code_of(error)
    try:
        if console.debug:
            console.note("".join(traceback.format_exception(error)).rstrip())
        error_view.show(console, error, code)
    except OSError as exc:
        # Nobody reads, or the disk behind the stream is full: the exit code still tells.
        _silence(console.stdout)
        if console.json and not isinstance(exc, BrokenPipeError):
            with contextlib.suppress(OSError):
                console.error(error_view.sentence(error), error_view.hint_of(error))
        _silence(console.stderr)
    return code


def _did_you_mean(word: str) -> str:
    import difflib

    close = difflib.get_close_matches(word, COMMANDS, n=3, cutoff=0.5)
    return f"; did you mean {' or '.join(close)}?" if close else ""


def _refuse_windows(platform: str) -> None:
    if platform in ("win32", "cygwin"):
        raise EnvironmentCheckError(
            "tfos does not run on Windows: it hands Unix sockets and process groups from Spark to TensorFlow",
            "Run it on Linux or macOS, or on Windows inside WSL 2.",
        )


def _prepare_streams() -> None:
    """Streams that take every text, also those that were closed before the start (`>&-`), where Python has None."""
    if sys.stdin is None or sys.stdout is None or sys.stderr is None:
        # A file opened later must not get the number of a standard stream, which children write to.
        while (spare := os.open(os.devnull, os.O_RDWR)) <= _STDERR:
            os.set_inheritable(spare, True)
        os.close(spare)
        sys.stdin = sys.stdin or open(0, encoding="utf-8")  # noqa: SIM115 - open until the end
        sys.stdout = sys.stdout or open(1, "w", encoding="utf-8")  # noqa: SIM115
        sys.stderr = sys.stderr or open(2, "w", encoding="utf-8")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            # A name in another encoding, or a terminal that knows few characters, is no reason to fail.
            stream.reconfigure(errors="backslashreplace")


def _silence(stream: TextIO) -> None:
    """Keep the interpreter from complaining about a stream that takes nothing more when it flushes it at exit."""
    try:
        stream.flush()
    except (OSError, ValueError):
        devnull = os.open(os.devnull, os.O_WRONLY)
        try:
            os.dup2(devnull, stream.fileno())
        except (OSError, ValueError):
            return  # it is closed, or not a file: nothing will be flushed
        finally:
            os.close(devnull)
