"""What `tfos` itself costs: CPU seconds of commands that start nothing, and what `tfos train` adds to its spark-submit.

    python benchmarks/launcher.py [--rounds 7] [--trains 5]

* `tfos --help`, `tfos validate`, `tfos train --dry-run`: user and system time of the process and of what it starts.
* `tfos train` of a job with one node whose function returns at once, on the embedded default, against the very spark-submit command
  that `tfos train` would run (made by the same code, without a follower), in alternating rounds. The CPU time is that of the tfos
  process alone and of the helpers that it waits for before Spark starts; the wall time is that of everything.

The first round of each side warms up and is not counted.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from report import Measurement, measure, print_table, write_results

_SPEC = """\
name: trivial
entrypoint: trivial.py:main_fun
input_mode: tensorflow
num_executors: 1
"""
_PROGRAM = '''\
"""A job that has nothing to do."""


def main_fun(args, ctx):
    """Return at once."""
'''
TFOS = (sys.executable, "-m", "tfos_cli")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What one command took; `cpu_s` is its process alone."""

    wall_s: float
    cpu_s: float


def main() -> None:
    """Measure, print the tables, and write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7, help="runs of each command that starts nothing (default 7)")
    parser.add_argument("--trains", type=int, default=5, help="measured pairs of `tfos train` and spark-submit (default 5)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="launcher-") as name:
        folder = Path(name)
        (folder / "trivial.yaml").write_text(_SPEC)
        (folder / "trivial.py").write_text(_PROGRAM)
        os.environ["TFOS_HOME"] = str(folder / "home")
        # Modules are compiled once, as when they were installed, whatever the shell says about that.
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        os.environ["PYTHONPYCACHEPREFIX"] = str(folder / "compiled")
        measurements = _commands(folder, options.rounds) + (_trains(folder, options.trains) if options.trains else [])
    print(f"\nwritten: {write_results('launcher', measurements, master='local-cluster', **vars(options))}")


def _commands(folder: Path, rounds: int) -> list[Measurement]:
    commands = {
        "tfos --help": ["--help"],
        "tfos validate": ["validate", "trivial.yaml"],
        "tfos train --dry-run": ["train", "trivial.yaml", "--dry-run"],
    }
    found = []
    for shown, arguments in commands.items():
        costs = [_cost_of_all([*TFOS, *arguments], folder) for _ in range(rounds + 1)][1:]
        found.append(measure(shown, "ours", costs, unit="CPU s"))
    print_table("commands that start nothing", [(each, None) for each in found])
    return found


def _cost_of_all(argv: list[str], folder: Path) -> float:
    """CPU seconds of a command and of all that it waits for."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(argv, cwd=folder, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _trains(folder: Path, count: int) -> list[Measurement]:
    ours, bare = [], []
    for number in range(count + 1):
        costs = _cost_alone([*TFOS, "train", "trivial.yaml", "--no-progress"], folder), _bare(folder)
        if number:
            ours.append(costs[0])
            bare.append(costs[1])
    case = "a job that does nothing"
    added = [mine.wall_s - theirs.wall_s for mine, theirs in zip(ours, bare, strict=True)]
    found = [
        measure(case, "spark-submit of the same shim", [cost.wall_s for cost in bare], unit="s"),
        measure(case, "tfos train", [cost.wall_s for cost in ours], unit="s"),
        measure(case, "added by tfos train", added, unit="s"),
        measure(case, "the tfos process", [cost.cpu_s for cost in ours], unit="CPU s"),
    ]
    print_table(case, [(each, None) for each in found])
    return found


def _bare(folder: Path) -> Cost:
    """What `tfos train` would start, started here."""
    from tfos_cli.runs import RunStore
    from tfos_cli.spec.loader import load_spec
    from tfos_cli.submit.preparation import prepare

    resolved = load_spec(folder / "trivial.yaml", (), os.environ, verb="train")
    run = RunStore.of_environment(os.environ).create("trivial", master="bare")
    with prepare(
        resolved, run_id=run.id, run_folder=run.folder, plan_path=run.plan_path, channel=None, environ=os.environ
    ) as prepared:
        command = prepared.command
        return _cost_alone(list(command.argv), Path(command.cwd), {**os.environ, **command.environment})


def _cost_alone(argv: list[str], folder: Path, environment: dict[str, str] | None = None) -> Cost:
    """What a command took; its CPU time without that of its children."""
    started = time.perf_counter()
    with subprocess.Popen(argv, cwd=folder, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        errors = process.stderr.read()
        # A process that has ended and was not waited for still tells what it took.
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        wall_s = time.perf_counter() - started
        fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    if process.returncode:
        raise RuntimeError(f"{argv[:4]} ended with code {process.returncode}: {errors.decode(errors='replace')[-2000:]}")
    return Cost(wall_s=wall_s, cpu_s=(int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"))


if __name__ == "__main__":
    main()
