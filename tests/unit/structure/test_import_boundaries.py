"""What importing costs, and in which direction imports go.

`tfos --help` and `tfos validate` have to answer in a blink, and pyspark and TensorFlow take seconds to import. One careless import
at the top of a module brings them in; these tests run fresh interpreters and look. Move the import into the function that needs
it rather than weakening a list here.
"""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
HEAVY = {"pyspark", "py4j", "tensorflow", "tf_keras", "keras", "tensorboard"}
#: What executors do not have, or what only the command line may use.
NOT_IN_CORE = {"click", "rich", "pydantic", "yaml", "psutil"}

#: Their classes derive from pyspark's. Only Spark, `tfrecords.register` and the names of `tfos_core.pipeline` import them.
DERIVED_FROM_PYSPARK = {"tfos_core.tfrecords.datasource"} | {
    f"tfos_core.pipeline.{name}" for name in ("estimator", "model", "params", "persistence")
}

CLI_PROBE = """
import json, sys
from tfos_cli.main import run
code = run(json.loads(sys.argv[1]))
print(json.dumps([code, sorted({name.partition(".")[0] for name in sys.modules})]), file=sys.__stderr__)
"""

CORE_PROBE = """
import importlib, json, sys
found = {}
for name in json.loads(sys.argv[1]):
    before = set(sys.modules)
    importlib.import_module(name)
    found[name] = sorted({module.partition(".")[0] for module in set(sys.modules) - before})
print(json.dumps(found))
"""


def probe(program: str, argument: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program, json.dumps(argument)], capture_output=True, text=True, cwd=ROOT, timeout=60, check=False
    )


def modules_of(package: str) -> list[str]:
    files = sorted((ROOT / package).rglob("*.py"))
    names = [".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__") for file in files]
    return [name for name in names if not name.endswith("__main__")]


def imported_by(file: Path) -> set[str]:
    """Top-level names of everything that a file imports, also inside functions, but not for type checkers only."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    for_checkers = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    found: set[str] = set()
    for node in ast.walk(tree):
        if id(node) in for_checkers:
            continue
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            found.add(node.module.partition(".")[0])
    return found


@pytest.mark.parametrize(
    "line",
    [
        ["--help"],
        ["train", "--help"],
        ["schema"],
        ["validate", "jobspecs/digits_spark.yaml"],
        ["validate", "jobspecs/digits_tensorflow.yaml"],
        ["train", "jobspecs/digits_spark.yaml", "--dry-run"],
    ],
    ids=" ".join,
)
def test_a_command_that_starts_nothing_imports_neither_spark_nor_tensorflow(line: list[str]) -> None:
    outcome = probe(CLI_PROBE, line)
    code, modules = json.loads(outcome.stderr.splitlines()[-1])
    assert code == 0, outcome.stderr
    assert HEAVY.isdisjoint(modules)


def test_what_submits_and_follows_a_job_needs_no_arrays_and_no_server() -> None:
    """Half a second of imports each time: constants that the command line shares with the driver are in `settings`."""
    program = "import json, sys, tfos_cli.submission, tfos_cli.ui.progress; print(json.dumps(sorted(sys.modules)))"
    outcome = probe(program, [])
    assert outcome.returncode == 0, outcome.stderr
    unwanted = {"numpy", "pyarrow", "pandas", "tfos_core.node", "tfos_core.reservation.server", "tfos_core.feed.hub"}
    assert unwanted.isdisjoint(json.loads(outcome.stdout))


def test_before_spark_submit_starts_nothing_is_imported_that_can_wait_for_it() -> None:
    """A tenth of a second by which every job would start later: what shows a run, and what few jobs need."""
    program = "import json, sys, tfos_cli.commands.train, tfos_cli.submission; print(json.dumps(sorted(sys.modules)))"
    outcome = probe(program, [])
    assert outcome.returncode == 0, outcome.stderr
    shows = {
        "rich",
        "psutil",
        "tfos_cli.story",
        "tfos_cli.diagnosis",
        "tfos_cli.ui.run_view",
        "tfos_cli.ui.progress",
        "tfos_core.events",
    }
    rare = {"tarfile", "xml.etree.ElementTree", "concurrent.futures", "tfos_cli.remote.place", "tfos_cli.submit.venv_archive"}
    assert (shows | rare).isdisjoint(json.loads(outcome.stdout))


def test_java_is_asked_before_the_modules_that_read_a_spec_are_imported() -> None:
    outcome = probe(
        "import json, sys, tfos_cli.commands.train, tfos_cli.commands.infer; print(json.dumps(sorted(sys.modules)))", []
    )
    assert outcome.returncode == 0, outcome.stderr
    assert {"pydantic", "yaml", "tfos_cli.spec.loader"}.isdisjoint(json.loads(outcome.stdout))


def test_importing_any_module_of_the_core_brings_in_nothing_that_executors_may_lack() -> None:
    names = [name for name in modules_of("tfos_core") if name not in DERIVED_FROM_PYSPARK]
    outcome = probe(CORE_PROBE, names)
    assert outcome.returncode == 0, outcome.stderr
    found = json.loads(outcome.stdout)
    guilty = {name: sorted(set(new) & (HEAVY | NOT_IN_CORE | {"tfos_cli"})) for name, new in found.items()}
    assert {name: names for name, names in guilty.items() if names} == {}


@pytest.mark.parametrize("file", sorted((ROOT / "tfos_core").rglob("*.py")), ids=lambda file: str(file.relative_to(ROOT)))
def test_the_core_never_imports_the_command_line(file: Path) -> None:
    assert imported_by(file).isdisjoint({"tfos_cli"} | NOT_IN_CORE)


def test_the_driver_shim_needs_the_standard_library_and_the_core_only() -> None:
    assert imported_by(ROOT / "tfos_cli" / "driver.py") <= set(sys.stdlib_module_names) | {"tfos_core", "pyspark"}
