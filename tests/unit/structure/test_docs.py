"""Documentation says what is there: links lead somewhere, commands and options exist, every command is described."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click
import pytest

from tfos_cli.commands import COMMANDS
from tfos_cli.exit_codes import ExitCode
from tfos_cli.main import cli

if TYPE_CHECKING:
    from tests.conftest import RunLine

ROOT = Path(__file__).parents[3]
PAGES = sorted(
    [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "jobspecs").rglob("*.md"), *(ROOT / "benchmarks").rglob("*.md")]
)
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
INLINE = re.compile(r"`([^`\n]+)`")
MAKE_TARGET = re.compile(r"^([a-z][a-z-]*):", re.MULTILINE)


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def anchors(page: Path) -> set[str]:
    """The anchors that GitHub gives to headings."""
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    headings = re.findall(r"^#+ +(.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def code_in(page: Path) -> Iterator[str]:
    """Lines of fenced blocks, and inline code."""
    text = page.read_text(encoding="utf-8")
    for block in FENCE.findall(text):
        yield from (line.strip().removeprefix("$ ") for line in block.splitlines()[1:-1])
    yield from INLINE.findall(FENCE.sub("", text))


def commands_in(page: Path) -> list[list[str]]:
    """Words of every shown `tfos VERB ...`; a name in capitals or a path stands for the verb's argument."""
    lines = (line.removeprefix(".venv/bin/").partition("  #")[0] for line in code_in(page))
    return [line.split() for line in lines if re.match(r"tfos [a-z]", line)]


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_link_leads_to_a_file_and_a_heading(page: Path) -> None:
    broken = []
    for target in LINK.findall(FENCE.sub("", page.read_text(encoding="utf-8"))):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        if not file.exists() or (anchor and anchor not in anchors(file)):
            broken.append(target)
    assert broken == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_command_that_is_shown_exists_with_its_options(page: Path) -> None:
    wrong = []
    for words in commands_in(page):
        verb = words[1]
        if verb not in COMMANDS:
            wrong.append(" ".join(words))
            continue
        command = cli.get_command(click.Context(cli), verb)
        assert command is not None
        known = {option for parameter in command.params for option in parameter.opts} | {"--help", "-h"}
        used = {word.strip("[]").partition("=")[0] for word in words[2:] if word.strip("[").startswith("-")}
        wrong += [f"{' '.join(words)}: {option}" for option in sorted(used - known)]
    assert wrong == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_make_target_that_is_shown_exists(page: Path) -> None:
    targets = set(MAKE_TARGET.findall((ROOT / "Makefile").read_text(encoding="utf-8")))
    shown = {match[1] for line in code_in(page) if (match := re.match(r"make ([a-z][a-z-]*)", line))}
    assert shown - targets == set()


def test_the_first_job_of_the_readme_is_valid(run_line: RunLine, tmp_path: Path) -> None:
    for kind, text in re.findall(r"```(python|yaml)\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL):
        (tmp_path / ("first.py" if kind == "python" else "first.yaml")).write_text(text, encoding="utf-8")
    run_line("tfos validate first.yaml --strict")


def test_changelog_and_docs_are_not_empty() -> None:
    assert [name_of(page) for page in PAGES if len(page.read_text(encoding="utf-8")) < 200] == []
    assert len(PAGES) > 10


def section_of(verb: str) -> str:
    text = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    found = re.search(rf"^## tfos {verb}$(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    return found[1] if found else ""


@pytest.mark.parametrize("verb", list(COMMANDS))
def test_every_command_has_a_section_that_names_all_its_options(verb: str) -> None:
    command = importlib.import_module(f"tfos_cli.commands.{verb.replace('-', '_')}").command
    text = section_of(verb)
    assert text, f"docs/cli.md has no section '## tfos {verb}'"
    shared = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8").partition("## tfos ")[0]
    missing = [
        parameter.opts[-1]
        for parameter in command.params
        if isinstance(parameter, click.Option) and not any(option in text + shared for option in parameter.opts)
    ]
    assert missing == []


@pytest.mark.parametrize("verb", list(COMMANDS))
def test_the_help_of_every_command_has_examples(verb: str) -> None:
    command = importlib.import_module(f"tfos_cli.commands.{verb.replace('-', '_')}").command
    assert "Examples:" in (command.help or "")
    assert command.help.splitlines()[0] == COMMANDS[verb]


@pytest.mark.parametrize("code", [int(code) for code in ExitCode])
def test_every_exit_code_has_a_section_for_when_something_goes_wrong(code: int) -> None:
    text = (ROOT / "docs" / "debugging.md").read_text(encoding="utf-8")
    assert re.search(rf"^## (.*\b)?{code}\b", text, re.MULTILINE), f"docs/debugging.md has no heading for exit code {code}"
