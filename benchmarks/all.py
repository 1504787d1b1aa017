"""Runs the benchmarks, merges their results, and shows them: `make bench`.

    python benchmarks/all.py [--only feed,control] [--show] [--publish]

Each benchmark is a script that writes JSON into `results/`. Of each case the newest measurements count, so that a part can be run
again: `--only feed/tuple10,control`. Then `results/summary.json` and `results/summary.svg` are written and the table is printed;
`--show` does only that. `--publish` writes the summary to docs/performance.json and its tables into docs/performance.md.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from report import RESULTS
from shapes import SHAPES
from summary import merge, render_markdown, render_text, summarise

HERE = Path(__file__).resolve().parent
DOCS = HERE.parent / "docs"
BEGIN, END = "<!-- measured -->", "<!-- end of measured -->"
COMMANDS: dict[str, tuple[str, ...]] = {
    "feed": ("feed.py",),
    "bounds": ("bounds.py",),
    "direct_reading": ("direct_reading.py",),
    "inference": ("inference.py", "--rounds", "5"),
    "cluster_inference": ("cluster_inference.py",),
    "control": ("control.py",),
    "launcher": ("launcher.py",),
    "lifecycle": ("lifecycle.py",),
    "tfrecords": ("tfrecords.py",),
    "equal_steps": ("equal_steps.py", "--shape", "tuple10", "--shape", "list784", "--shape", "frame784"),
}
_LEAST_SCALE = 0.25
#: Run when they are there.
OPTIONAL = {
    "cache": ("cache.py",),
    # The whole gigabyte takes a minute for each epoch.
    "end_to_end": ("end_to_end.py", "--gigabytes", "0.1"),
}


def main() -> int:
    """Run what is asked for; 1 when a benchmark failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", type=_names, default=(), help="names of benchmarks, separated by commas")
    parser.add_argument("--show", action="store_true", help="run nothing; summarise what is in results/")
    parser.add_argument("--publish", action="store_true", help="write docs/performance.json and the tables of docs/performance.md")
    options = parser.parse_args()
    failed = [] if options.show else _run(chosen(options.only))
    documents = [json.loads(path.read_text()) for path in RESULTS.glob("*-*Z.json")]
    summary = summarise(merge(filter(counts, documents)))
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "summary.json").write_text(json.dumps(summary, indent=1) + "\n")
    print(render_text(summary))
    print(f"\nwritten: {RESULTS / 'summary.json'}{_draw(summary)}")
    if options.publish:
        (DOCS / "performance.json").write_text(json.dumps(summary, indent=1) + "\n")
        page = DOCS / "performance.md"
        page.write_text(with_block(page.read_text(encoding="utf-8"), render_markdown(summary)), encoding="utf-8")
        print(f"written: {page}")
    for name in failed:
        print(f"FAILED: {name}", file=sys.stderr)
    return 1 if failed else 0


def chosen(names: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """The commands of these benchmarks, all without names; `feed/SHAPE` is one shape of `feed`.

    Raises:
        SystemExit: there is no such benchmark.
    """
    known = COMMANDS | {name: command for name, command in OPTIONAL.items() if (HERE / command[0]).exists()}
    known |= {f"feed/{shape.name}": ("feed.py", "--shape", shape.name) for shape in SHAPES}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise SystemExit(f"no benchmark {', '.join(unknown)}; there are {', '.join(known)}")
    return {name: command for name, command in known.items() if (name in names if names else "/" not in name)}


def counts(document: Mapping[str, Any]) -> bool:
    """Whether these are results of a benchmark that `make bench` runs, and not of a trial with a few rows."""
    names = {key.partition("/")[0] for key in (*COMMANDS, *OPTIONAL)}
    return document["benchmark"] in names and document["settings"].get("scale", 1.0) >= _LEAST_SCALE


def with_block(page: str, block: str) -> str:
    """A page with this between its marks."""
    return re.sub(f"{BEGIN}.*{END}", lambda _: f"{BEGIN}\n\n{block}\n\n{END}", page, flags=re.DOTALL)


def _names(text: str) -> tuple[str, ...]:
    return tuple(filter(None, text.split(",")))


def _run(commands: dict[str, tuple[str, ...]]) -> list[str]:
    failed = []
    for name, command in commands.items():
        print(f"\n== {name}", flush=True)
        if subprocess.run([sys.executable, str(HERE / command[0]), *command[1:]]).returncode:
            failed.append(name)
    return failed


def _draw(summary: dict[str, object]) -> str:
    from importlib.util import find_spec

    if find_spec("matplotlib") is None:
        return " (no plot: pip install 'tfos[bench]')"
    from plot import draw

    draw(summary, RESULTS / "summary.svg")
    return f", {RESULTS / 'summary.svg'}"


if __name__ == "__main__":
    sys.exit(main())
