"""`load_spec`: files that can not be used, and messages about what is in them."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path

import pytest

from tfos_cli.spec.errors import Problem, SpecError
from tfos_cli.spec.loader import load_spec

GOOD = "name: digits\nentrypoint: apps/digits.py:main_fun\n"

Problems = Callable[[str], tuple[Problem, ...]]


@pytest.fixture
def problems(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Problems:
    """The problems of a spec of this text, whose file is job.yaml."""
    monkeypatch.chdir(tmp_path)

    def load(text: str) -> tuple[Problem, ...]:
        Path("job.yaml").write_text(text, encoding="utf-8")
        with pytest.raises(SpecError) as caught:
            load_spec("job.yaml")
        return caught.value.problems

    return load


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"nowhere\.yaml: there is no such file") as caught:
        load_spec(tmp_path / "nowhere.yaml")
    assert "jobspecs" in (caught.value.hint or "")


def test_a_folder_is_no_spec(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="this is a folder"):
        load_spec(tmp_path)


def test_an_unreadable_file_is_told_with_the_reason(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.symlink_to(file)  # unreadable for root as well
    with pytest.raises(SpecError, match="can not be read: Too many levels of symbolic links"):
        load_spec(file)


def test_a_path_below_a_file_is_told_with_the_reason(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(GOOD)
    with pytest.raises(SpecError, match="can not be read: Not a directory"):
        load_spec(file / "x.yaml")


def test_a_file_that_is_not_utf_8_is_told_with_byte_and_line(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_bytes(b"name: digits\nentrypoint: \xff\n")
    with pytest.raises(SpecError, match=r"job\.yaml:2: byte 0xff is not UTF-8"):
        load_spec(file)


def test_a_huge_file_is_not_read_whole(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    with file.open("wb") as stream:
        stream.truncate(1 << 40)
    with pytest.raises(SpecError, match="larger than 1 MiB"):
        load_spec(file)


def test_a_byte_order_mark_is_no_part_of_the_first_key(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(GOOD, encoding="utf-8-sig")
    assert load_spec(file).spec.name == "digits"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the file is empty, expected the keys of a job spec"),
        ("# nothing\n", "the file is empty, expected the keys of a job spec"),
        ("- a\n- b\n", "the file holds a list, expected a mapping of keys and values"),
        ("hello\n", "the file holds 'hello', expected a mapping of keys and values"),
    ],
)
def test_a_file_without_keys_is_one_sentence(problems: Problems, text: str, message: str) -> None:
    (problem,) = problems(text)
    assert problem.message == message


def test_text_that_is_not_yaml_is_one_sentence_with_the_line(problems: Problems) -> None:
    (problem,) = problems("name: digits\nentrypoint: [a\n")
    assert problem.where == "job.yaml:3"
    assert problem.message.startswith("this is not YAML")
    assert "\n" not in problem.message


@pytest.mark.parametrize(
    ("line", "field", "message", "hint"),
    [
        ("num_executorz: 3", "num_executorz", "unknown key 'num_executorz'", "Did you mean 'num_executors'?"),
        ("executor_memory: 2g", "executor_memory", "unknown key 'executor_memory'", "Did you mean 'spark.executor_memory'?"),
        ("spark: {jarz: []}", "spark.jarz", "unknown key 'spark.jarz'", "Did you mean 'jars'?"),
        ("restart: {zzz: 1}", "restart.zzz", "unknown key 'restart.zzz'", "Known keys: max_restarts."),
        ("num_executors: three", "num_executors", "num_executors is 'three', expected a whole number", ""),
        ('num_executors: "3"', "num_executors", "num_executors is '3', expected a whole number", "Remove the quotes."),
        ("num_executors: -2", "num_executors", "num_executors is -2, expected 1 or more", ""),
        ("num_executors: 20000", "num_executors", "num_executors is 20000, expected 10000 or less", ""),
        ("feed_timeout: 0", "feed_timeout", "feed_timeout is 0, expected above 0", ""),
        ("feed_timeout: .inf", "feed_timeout", "feed_timeout is inf, expected a finite number", ""),
        ("feed_timeout: [1]", "feed_timeout", "feed_timeout is a list, expected a number", ""),
        (
            "input_mode: sparc",
            "input_mode",
            "input_mode is 'sparc', expected one of 'spark' or 'tensorflow'",
            "Did you mean 'spark'?",
        ),
        (
            "eval_node: yes",
            "eval_node",
            "eval_node is 'yes', expected true or false",
            "Write true or false: yes, no, on and off are text here, as in YAML 1.2.",
        ),
        ("eval_node: 1", "eval_node", "eval_node is 1, expected true or false", ""),
        ("eval_node:", "eval_node", "eval_node is empty, expected true or false", ""),
        ("gpus: many", "gpus", "gpus is 'many', expected a whole number or a mapping", ""),
        ("gpus: -1", "gpus.per_node", "gpus.per_node is -1, expected 0 or more", ""),
        ("tensorboard: 3", "tensorboard", "tensorboard is 3, expected true, false or a mapping", ""),
        ("data: x", "data", "data is 'x', expected a mapping of keys and values", ""),
        ("data: {columns: a}", "data.columns", "data.columns is 'a', expected a list", ""),
        ("data: {columns: [1]}", "data.columns[0]", "data.columns[0] is 1, expected text", "Put quotes around it."),
        ("data: {options: []}", "data.options", "data.options is a list, expected a mapping of keys and values", ""),
        (
            "spark: {executor_memory: 1024}",
            "spark.executor_memory",
            "spark.executor_memory is 1024, expected a size with a unit, such as 512m or 4g",
            "",
        ),
        ("spark: {conf: {a: }}", "spark.conf.a", "spark.conf.a is empty, expected text", ""),
        ("stream: {}", "stream.source", "the key 'stream.source' is missing", None),
        ("infer: {export_dir: ''}", "infer.export_dir", "infer.export_dir is '', expected text that is not empty", ""),
    ],
)
def test_a_mistake_is_told_with_place_value_and_what_was_expected(
    problems: Problems, line: str, field: str, message: str, hint: str | None
) -> None:
    problem = problems(f"{GOOD}{line}\n")[0]
    assert (problem.where, problem.line, problem.field, problem.message) == ("job.yaml:3", 3, field, message)
    assert hint is None or problem.hint == hint


def test_a_bad_name_is_told_with_the_rule(problems: Problems) -> None:
    (problem,) = problems("name: Digits\nentrypoint: a.py:f\n")
    assert problem.message.startswith("name is 'Digits', expected 1 to 63 lower-case letters")


def test_all_mistakes_come_at_once_in_the_order_of_the_file(problems: Problems) -> None:
    found = problems("num_ps: -1\nname: digits\nspark:\n  jarz: []\n  executor_cores: 0\nname: twice\n")
    assert [(problem.line, problem.field) for problem in found] == [
        (1, "num_ps"),
        (4, "spark.jarz"),
        (5, "spark.executor_cores"),
        (6, "name"),
    ]


def test_a_misspelt_key_is_not_missing_as_well(problems: Problems) -> None:
    (problem,) = problems("name: digits\nentrypont: a.py:f\n")
    assert problem.hint == "Did you mean 'entrypoint'?"


def test_the_error_text_lists_every_mistake(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(GOOD + "num_ps: -1\neval_node: 3\n")
    with pytest.raises(SpecError) as caught:
        load_spec(file)
    assert str(caught.value).splitlines() == [
        f"{file} has 2 errors:",
        f"  {file}:3: num_ps is -1, expected 0 or more",
        f"  {file}:4: eval_node is 3, expected true or false",
    ]
    assert (caught.value.file, caught.value.line, caught.value.field) == (str(file), 3, "num_ps")


def test_the_error_survives_pickle() -> None:
    error = SpecError.of("job.yaml", (Problem(where="job.yaml:3", line=3, field="a", message="m", hint="h"),))
    again = pickle.loads(pickle.dumps(error))
    assert (again.message, again.hint, again.problems) == ("job.yaml:3: m", "h", error.problems)


@pytest.mark.parametrize(
    "line",
    [
        "environment: {secrets: [TOKEN=s3cr3t]}",
        "environment: {secrets: TOKEN=s3cr3t}",
        "environment: {secrets: {TOKEN: s3cr3t}}",
        "environment: {secrets: [{TOKEN: s3cr3t}]}",
        "environment: {vars: {TOKEN: {a: s3cr3t}}}",
        "environment: {vars: {TOKEN: [s3cr3t]}}",
        "environment: {vars: s3cr3t}",
        "environment: {vars: {'TOKEN=s3cr3t': 1}}",
        "environment: {'TOKEN=s3cr3t': 1}",
        "environment: {token: s3cr3t}",
        "spark: {conf: {spark.x.password: [s3cr3t]}}",
        "args: s3cr3t",
        "data: {options: s3cr3t}",
        "environment: {secrets: [TOKEN]\nTOKEN: !s3cr3t",
    ],
)
def test_what_may_be_a_secret_is_never_echoed(tmp_path: Path, line: str) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(f"{GOOD}{line}\n")
    with pytest.raises(SpecError) as caught:
        load_spec(file)
    assert "s3cr3t" not in repr(caught.value.args)


def test_a_secret_with_its_value_is_refused_with_what_to_write(problems: Problems) -> None:
    (problem,) = problems(f"{GOOD}environment: {{secrets: [TOKEN=abc]}}\n")
    assert problem.message.startswith("environment.secrets[0] has a wrong value (not shown), expected only the name")
