"""YAML text to values with lines."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from tfos_cli.spec.errors import SpecError
from tfos_cli.spec.loader import load_spec
from tfos_cli.spec.rules import check
from tfos_cli.spec.yaml_source import Located, YamlProblem, parse_yaml


def plain(located: Located) -> object:
    if isinstance(located.value, dict):
        return {key: plain(value) for key, value in located.value.items()}
    if isinstance(located.value, list):
        return [plain(value) for value in located.value]
    return located.value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("true", True),
        ("False", False),
        ("yes", "yes"),
        ("no", "no"),
        ("on", "on"),
        ("~", None),
        ("null", None),
        ("", None),
        ("1e-3", 0.001),
        ("1.5", 1.5),
        (".5", 0.5),
        ("-7", -7),
        ("010", 10),
        ("0x1f", 31),
        ("0o17", 15),
        ("12:30", "12:30"),
        ("2024-01-01", "2024-01-01"),
        ("1_000", "1_000"),
        ("'1'", "1"),
        ('"true"', "true"),
        ("1.2.3", "1.2.3"),
        ("-.inf", -math.inf),
        ("[1, a]", [1, "a"]),
        ("{a: 1}", {"a": 1}),
        ("spark://host:7077", "spark://host:7077"),
        ("local-cluster[2,1,1024]", "local-cluster[2,1,1024]"),
    ],
)
def test_scalars_follow_the_core_schema_of_yaml_1_2(text: str, value: object) -> None:
    located, problems = parse_yaml(text)
    assert (plain(located), problems) == (value, ())


def test_every_key_knows_its_line() -> None:
    located, _ = parse_yaml("a: 1\nb:\n  c: 2\n  d:\n    - x\n    - y\n")
    assert isinstance(located.value, dict)
    inner = located.value["b"].value
    assert isinstance(inner, dict)
    items = inner["d"].value
    assert isinstance(items, list)
    assert [located.value["a"].line, located.value["b"].line, inner["c"].line, inner["d"].line] == [1, 2, 3, 4]
    assert [item.line for item in items] == [5, 6]


def test_an_alias_stands_on_the_line_of_its_key() -> None:
    located, problems = parse_yaml("a: &x {b: 1}\nc: *x\n")
    assert plain(located) == {"a": {"b": 1}, "c": {"b": 1}}
    assert isinstance(located.value, dict)
    assert located.value["c"].line == 2
    assert problems == ()


def test_all_duplicate_keys_are_told_with_both_lines() -> None:
    located, problems = parse_yaml("a: 1\nb: {c: 1, c: 2}\na: 3\n")
    assert plain(located) == {"a": 1, "b": {"c": 1}}
    assert [(problem.path, problem.line) for problem in problems] == [(("b", "c"), 2), (("a",), 3)]
    assert problems[1].message == "the key appears twice, first in line 1"


def test_merge_keys_and_keys_that_are_no_text_are_told() -> None:
    _, problems = parse_yaml("a: &x {b: 1}\nc:\n  <<: *x\n? [1, 2]\n: 3\n")
    assert ["merge" in problems[0].message, "must be text" in problems[1].message] == [True, True]
    assert [problem.line for problem in problems] == [3, 4]


@pytest.mark.parametrize("text", ["a: !!python/object/apply:os.system [echo]", "a: !x y", "!!map {a: 1}", "a: !!str 1", "a: ! b"])
def test_tags_are_refused(text: str) -> None:
    with pytest.raises(YamlProblem, match="tags"):
        parse_yaml(text)


def test_a_few_aliases_can_not_stand_for_millions_of_values() -> None:
    levels = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    levels += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 30)]
    with pytest.raises(YamlProblem, match="aliases counted each time"):
        parse_yaml("\n".join(levels))


def test_a_value_that_contains_itself_is_refused() -> None:
    with pytest.raises(YamlProblem, match="deep"):
        parse_yaml("a: &a [*a]")


@pytest.mark.parametrize("depth", [100, 100_000])
def test_deep_nesting_is_refused(depth: int) -> None:
    with pytest.raises(YamlProblem, match="deep"):
        parse_yaml("[" * depth + "]" * depth)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a: 1\nb: [1\nc: 2\n", 3),
        ("a: b: c", 1),
        ("a: 1\n\tb: 2", 2),
        ("a: 'x", 1),
        ("a: *unknown", 1),
        ("a: 1\n---\nb: 2", 2),
        ("%", 1),
    ],
)
def test_what_is_not_yaml_is_told_with_its_line(text: str, line: int) -> None:
    with pytest.raises(YamlProblem, match="not YAML") as caught:
        parse_yaml(text)
    assert caught.value.line == line


def test_control_characters_are_told_with_their_line() -> None:
    with pytest.raises(YamlProblem, match=r"U\+0007") as caught:
        parse_yaml("a: 1\nb: \x07\n")
    assert caught.value.line == 2


@pytest.mark.parametrize("text", ['a: "\\0"', 'a: "\\ud800"', 'a: ["x", "\\0"]'])
def test_escapes_that_nothing_can_print_are_told(text: str) -> None:
    _, problems = parse_yaml(text)
    assert "NUL" in problems[0].message


@pytest.mark.parametrize(
    "text", ["TOKEN: *s3cr3t", "TOKEN: !s3cr3t", "TOKEN: %s3cr3t", "TOKEN: @s3cr3t", "TOKEN: 's3cr3t\n", "{TOKEN: s3cr3t"]
)
def test_messages_about_yaml_do_not_quote_values(text: str) -> None:
    with pytest.raises(YamlProblem) as caught:
        parse_yaml(text)
    assert "s3cr3t" not in f"{caught.value.message} {caught.value.hint}"


def test_a_file_of_nothing_but_mistakes_is_told_in_a_hundred(tmp_path: Path) -> None:
    for text in ("a: 1\n" * 15_000, "name: d\n" + "".join(f"{'k' * 40}{number}: 1\n" for number in range(15_000))):
        (tmp_path / "job.yaml").write_text(text)
        with pytest.raises(SpecError) as refusal:
            load_spec(tmp_path / "job.yaml")
        assert 100 <= len(refusal.value.problems) <= 250


@pytest.mark.parametrize("text", ["".join(f"k{number}: &a{number} [1]\n" for number in range(30_000)), "- 1\n" * 50_000])
def test_too_many_values_are_told_before_all_are_read(text: str) -> None:
    with pytest.raises(YamlProblem, match="more than 20000 values") as refusal:
        parse_yaml(text)
    assert (refusal.value.line or 0) < 45_000


@pytest.mark.parametrize("path", ["*/" * 2000 + "x.csv", "{a,b}" * 20_000 + "x.csv", "[" * 1000 + "x.csv", "**/" * 50 + "x.csv"])
def test_patterns_without_end_are_no_data(tmp_path: Path, path: str) -> None:
    (tmp_path / "job.yaml").write_text(f"name: d\nentrypoint: a.py:f\nnum_executors: 1\ndata: {{path: '{path}'}}\n")
    found = check(
        load_spec(tmp_path / "job.yaml", version_of=lambda name: None), environ={"TFOS_HOME": str(tmp_path)}, search_path=()
    )
    assert "data-missing" in {finding.id for finding in found}
