"""Whatever a spec holds, the answer is a resolved spec or a SpecError, and rules never raise."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tfos_cli.spec.errors import SpecError
from tfos_cli.spec.loader import ResolvedSpec, load_spec
from tfos_cli.spec.model import JobSpec
from tfos_cli.spec.problems import model_in
from tfos_cli.spec.report import Report, findings_of, summarise
from tfos_cli.spec.rules import check

QUICK = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])

texts = st.text(max_size=12) | st.sampled_from(
    [
        "spark",
        "tensorflow",
        "1g",
        "a.py:f",
        "local[2]",
        "yarn",
        "k8s://x",
        "spark://h:1",
        "local-cluster[1,1,1]",
        "train.csv",
        "*",
        "[",
        "~",
    ]
)
scalars = st.none() | st.booleans() | st.integers(-3, 3) | st.integers() | st.floats() | texts
values = st.recursive(scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3), max_leaves=6)


def sections(model: type[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Mappings with keys of a section, mostly with values of about the right form."""
    optional = {}
    for name, info in model.model_fields.items():
        inner = model_in(info.annotation)
        optional[name] = (sections(inner) | values) if inner else values
    return st.fixed_dictionaries({}, optional=optional)


specs = sections(JobSpec).map(lambda data: {"name": "d", "entrypoint": "a.py:f"} | data)

conf_keys = st.sampled_from(
    [
        "spark.executor.cores",
        "spark.executor.memory",
        "spark.driver.memory",
        "spark.executor.memoryOverhead",
        "spark.executor.memoryOverheadFactor",
        "spark.task.cpus",
        "spark.cores.max",
        "spark.executor.resource.gpu.amount",
        "spark.task.resource.gpu.amount",
        "spark.locality.wait",
        "spark.executor.instances",
    ]
)
printable = st.text(st.characters(exclude_categories=("C",)), max_size=8) | st.sampled_from(
    ["~", "~nobody/x.csv", "file:/", "file://x"]
)
plausible = st.fixed_dictionaries(
    {
        "name": st.just("d"),
        "entrypoint": st.sampled_from(["a.py:f", "a.py:", ":", "a:b", "../x.py:f", "~/x.py:f", "~nobody/x.py:f"])
        | printable.filter(bool),
        "num_executors": st.integers(1, 5),
        "num_ps": st.integers(0, 3),
        "master_node": st.sampled_from(["chief", "master", None]),
        "eval_node": st.booleans(),
        "driver_ps_nodes": st.booleans(),
        "input_mode": st.sampled_from(["spark", "tensorflow"]),
        "data": st.none() | st.fixed_dictionaries({}, optional={"path": printable, "source": printable, "transform": printable}),
        "spark": st.fixed_dictionaries(
            {
                "master": st.none() | texts.filter(lambda text: text.strip() and text.isprintable()),
                "conf": st.dictionaries(conf_keys, printable | st.integers().map(str) | st.floats().map(str), max_size=4),
                "files": st.lists(printable, max_size=2),
            }
        ),
    }
)


def answer(file: Path, text: str, **flags: Any) -> ResolvedSpec | None:
    """The resolved spec, or None when it was refused with a SpecError that says something."""
    file.write_text(text, encoding="utf-8", errors="surrogatepass")
    try:
        return load_spec(file, version_of=lambda name: None, **flags)
    except SpecError as error:
        assert error.problems
        assert all(problem.message and problem.where for problem in error.problems)
        json.dumps(Report(file=str(file), findings=findings_of(error), summary=None, strict=False).to_dict())
        return None


def looked_at(resolved: ResolvedSpec, folder: Path) -> None:
    """The spec went through everything that `tfos validate` does."""
    findings = check(resolved, environ={"TFOS_HOME": str(folder)}, search_path=())
    report = Report(file="job.yaml", findings=findings, summary=summarise(resolved), strict=True)
    json.dumps(report.to_dict())
    assert all(isinstance(line, str) for line in report.lines())


@QUICK
@given(specs)
def test_random_values_are_resolved_or_refused(tmp_path: Path, data: dict[str, Any]) -> None:
    resolved = answer(tmp_path / "job.yaml", yaml.safe_dump(data, allow_unicode=True))
    if resolved is not None:
        assert JobSpec.from_dict(resolved.spec.to_dict()) == resolved.spec or "nan" in str(resolved.spec).lower()
        looked_at(resolved, tmp_path)


@QUICK
@given(plausible)
def test_rules_never_raise(tmp_path: Path, data: dict[str, Any]) -> None:
    # JSON is YAML 1.2; PyYAML writes YAML 1.1, where the plain text 0E0 is no number.
    resolved = answer(tmp_path / "job.yaml", json.dumps(data, ensure_ascii=False))
    assert resolved is not None
    looked_at(resolved, tmp_path)


@QUICK
@given(st.text(max_size=80) | st.text(alphabet="ab:{}[]&*!|>-'\"#%@,\n\t 01~", max_size=40))
def test_random_text_is_resolved_or_refused(tmp_path: Path, text: str) -> None:
    answer(tmp_path / "job.yaml", text)


@QUICK
@given(st.binary(max_size=60))
def test_random_bytes_are_refused(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "job.yaml"
    file.write_bytes(content)
    with pytest.raises(SpecError):
        load_spec(file)


@QUICK
@given(
    st.lists(st.tuples(texts, texts).map("=".join) | texts, max_size=3),
    st.dictionaries(texts.map(lambda text: f"TFOS_SET_{text}"), texts, max_size=3),
    st.lists(texts, max_size=2),
    st.lists(texts, max_size=2),
)
def test_random_overrides_are_resolved_or_refused(
    tmp_path: Path, sets: list[str], environ: dict[str, str], conf: list[str], env_vars: list[str]
) -> None:
    text = "name: d\nentrypoint: a.py:f\nspark: {jars: [a]}\n"
    resolved = answer(tmp_path / "job.yaml", text, overrides=sets, environ=environ, conf=conf, env_vars=env_vars)
    if resolved is not None:
        looked_at(resolved, tmp_path)
