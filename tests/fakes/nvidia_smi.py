"""Makes a `nvidia-smi` that answers as one of tests/data/nvidia_smi does."""

from __future__ import annotations

import sys
from pathlib import Path

__all__ = ("ANSWERS", "answer", "install")

ANSWERS = Path(__file__).parents[1] / "data" / "nvidia_smi"

_PROGRAM = """#!{python}
import pathlib, sys, time
answers = pathlib.Path({answers!r})
time.sleep({delay})
names = {{"-q": "report.txt", "-L": "list.txt", "--query-gpu": "gpus.csv", "--query-compute-apps": "processes.csv"}}
fields = {{
    "--query-gpu": "index,uuid,memory.used,memory.total,name",
    "--query-compute-apps": "gpu_uuid,pid,used_gpu_memory,process_name",
}}
what, _, asked = sys.argv[1].partition("=")
assert what in ("-L", "-q") or sys.argv[2:] == ["--format=csv,noheader,nounits"], sys.argv
assert asked == fields.get(what, ""), "the answers have other columns: " + asked
code = answers / "code"
failed = code.exists()
sys.stdout.write((answers / ("list.txt" if failed else names[what])).read_text())
sys.exit(int(code.read_text()) if failed else 0)
"""


def answer(host: str, kind: str) -> str:
    """One answer: `list.txt`, `gpus.csv`, `processes.csv`, or `report.txt`, which is empty where the host needs none."""
    path = ANSWERS / host / kind
    return path.read_text(encoding="utf-8") if path.exists() or kind != "report.txt" else ""


def install(folder: Path, host: str | Path, *, delay: float = 0) -> Path:
    """A program `nvidia-smi` in `folder` that replays a host of tests/data/nvidia_smi, `delay` seconds late; returns its path."""
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / "nvidia-smi"
    answers = ANSWERS / host
    assert answers.is_dir(), f"there are no answers of {host}"
    program.write_text(_PROGRAM.format(python=sys.executable, answers=str(answers), delay=delay), encoding="utf-8")
    program.chmod(0o755)
    return program
