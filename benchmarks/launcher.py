"""What `tfos` itself costs: CPU seconds of commands that start nothing, and what `tfos train` adds to its spark-submit.

    python benchmarks/launcher.py [--rounds 7] [--trains 5]

* `tfos --help`, `tfos validate`, `tfos train --dry-run`: user and system time of the process and of what it starts.
* `tfos train` of a job with one node whose function returns at once, on the embedded default. What it adds to its spark-submit is
  measured inside each run, because spark-submit itself takes 12 to 18 s for the same job, and a difference of two runs says nothing
  about tenths of a second:

  * until spark-submit starts: from before the start of the tfos process to the first line of `bin/spark-submit`, which is a bash
    script here as in Spark, notes the time (`$EPOCHREALTIME`, no process), and runs the real one; the start of that bash counts;
  * after spark-submit ended: from when that script has seen the end of the JVM to the end of the tfos process;
  * the channel: the one place where the driver could wait for tfos. It never waits for an answer (`tfos_core/shim/channel.py`), so
    this is what connecting, handing over the lines of the run's events, and closing take, with both ends in one process.

  `added by tfos train` is the sum of the three. What tfos computes while spark-submit runs takes from the job only what the machine
  has no core for; it is in the CPU time of the tfos process, which is that of this process alone.
* The very spark-submit command that `tfos train` would run (made by the same code, without a follower), in alternating rounds with
  it: the wall time of everything, and the differences of the pairs, with the reservation above.

What the libraries take of it stands beside it: a Python that does nothing but import click, PyYAML and pydantic, each of which a
job spec needs before spark-submit can start.

The first round of each side warms up and is not counted.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
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
#: Notes when it starts and when the real one has ended, in seconds since the epoch, with a builtin: a process would take time.
_SPARK_SUBMIT = """\
#!/usr/bin/env bash
echo "$EPOCHREALTIME" > '{stamps}'
'{real}' "$@"
code=$?
echo "$EPOCHREALTIME" >> '{stamps}'
exit $code
"""
TFOS = (sys.executable, "-m", "tfos_cli")
_LIBRARIES = (sys.executable, "-c", "import click, yaml; from pydantic import BaseModel")
_CHANNEL_TIMEOUT_S = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What one command took; `cpu_s` is its process alone. `started` and `ended` are in seconds since the epoch."""

    wall_s: float
    cpu_s: float
    started: float
    ended: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Added:
    """What one `tfos train` took beside its spark-submit, in seconds."""

    before_s: float
    after_s: float
    channel_s: float

    @property
    def total_s(self) -> float:
        """All of it."""
        return self.before_s + self.after_s + self.channel_s


def main() -> None:
    """Measure, print the tables, and write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7, help="runs of each command that starts nothing (default 7)")
    parser.add_argument("--trains", type=int, default=5, help="measured pairs of `tfos train` and spark-submit (default 5)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="launcher-") as name:
        folder = Path(name)
        # Alone in its folder: Python packages beside a program travel with it.
        job = folder / "job"
        job.mkdir()
        (job / "trivial.yaml").write_text(_SPEC)
        (job / "trivial.py").write_text(_PROGRAM)
        os.environ["TFOS_HOME"] = str(folder / "home")
        # Modules are compiled once, as when they were installed, whatever the shell says about that.
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        os.environ["PYTHONPYCACHEPREFIX"] = str(folder / "compiled")
        measurements = _commands(job, options.rounds)
        if options.trains:
            stamps = _timed_spark(folder / "spark", folder / "stamps")
            measurements += _trains(job, options.trains, stamps)
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


def _timed_spark(home: Path, stamps: Path) -> Path:
    """Make `SPARK_HOME` a folder of links to the Spark that is found, whose spark-submit notes its times in the file `stamps`."""
    from tfos_cli.submit.spark_home import locate_spark

    real = locate_spark(os.environ).path
    (home / "bin").mkdir(parents=True)
    for entry in (*real.iterdir(), *(real / "bin").iterdir()):
        if entry.name not in ("bin", "work", "logs", "spark-submit"):
            (home / entry.relative_to(real)).symlink_to(entry)
    program = home / "bin" / "spark-submit"
    program.write_text(_SPARK_SUBMIT.format(stamps=stamps, real=real / "bin" / "spark-submit"))
    program.chmod(0o755)
    os.environ["SPARK_HOME"] = str(home)
    return stamps


def _trains(folder: Path, count: int, stamps: Path) -> list[Measurement]:
    ours, bare, added, libraries = [], [], [], []
    for number in range(count + 1):
        cost = _cost_alone([*TFOS, "train", "trivial.yaml", "--no-progress"], folder)
        beside = _added(cost, stamps)
        base = _bare(folder)
        alone = _cost_alone(list(_LIBRARIES), folder)
        if number:
            ours.append(cost)
            added.append(beside)
            bare.append(base)
            libraries.append(alone)
    case = "a job that does nothing"
    found = [
        measure(case, "until spark-submit starts", [each.before_s for each in added], unit="s"),
        measure(case, "after spark-submit ended", [each.after_s for each in added], unit="s"),
        measure(case, "the channel", [each.channel_s for each in added], unit="s"),
        measure(case, "added by tfos train", [each.total_s for each in added], unit="s"),
        measure(case, "Python that imports the libraries", [cost.wall_s for cost in libraries], unit="s"),
        measure(case, "the tfos process", [cost.cpu_s for cost in ours], unit="CPU s"),
        measure(case, "tfos train", [cost.wall_s for cost in ours], unit="s"),
        measure(case, "spark-submit of the same shim", [cost.wall_s for cost in bare], unit="s"),
        measure(case, "difference of the pairs", [a.wall_s - b.wall_s for a, b in zip(ours, bare, strict=True)], unit="s"),
    ]
    print_table(case, [(each, None) for each in found])
    return found


def _added(cost: Cost, stamps: Path) -> Added:
    from tfos_cli.runs import RunStore

    # The decimal point of $EPOCHREALTIME is that of the locale.
    began, ended = (float(line.replace(",", ".")) for line in stamps.read_text().split())
    run = RunStore.of_environment(os.environ).all()[-1]
    lines = run.events_path.read_text(encoding="utf-8").splitlines()
    return Added(before_s=began - cost.started, after_s=cost.ended - ended, channel_s=_channel_s(run.folder / "again.json", lines))


def _channel_s(descriptor: Path, lines: Sequence[str]) -> float:
    """Seconds that the driver spends on telling these lines."""
    from tfos_cli.channel import ChannelServer
    from tfos_core.shim.channel import ChannelDescriptor, FollowerChannel

    over = threading.Event()
    server = ChannelServer(
        descriptor,
        on_connected=lambda: None,
        on_line=lambda _line: None,
        on_closed=over.set,
        on_stranger=lambda _why: None,
    )
    with server:
        started = time.perf_counter()
        channel = FollowerChannel(ChannelDescriptor.read(descriptor), on_shutdown=lambda _why: None, on_closed=lambda: None)
        for line in lines:
            channel.send(line)
        channel.close()
        taken = time.perf_counter() - started
        if not over.wait(_CHANNEL_TIMEOUT_S):
            raise RuntimeError("the channel did not close")
    return taken


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
    started = time.time()
    with subprocess.Popen(argv, cwd=folder, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        errors = process.stderr.read()
        # A process that has ended and was not waited for still tells what it took.
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        ended = time.time()
        fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    if process.returncode:
        raise RuntimeError(f"{argv[:4]} ended with code {process.returncode}: {errors.decode(errors='replace')[-2000:]}")
    cpu_s = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return Cost(wall_s=ended - started, cpu_s=cpu_s, started=started, ended=ended)


if __name__ == "__main__":
    main()
