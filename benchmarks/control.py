"""The control channel under many nodes: ours and the reservation server of TensorFlowOnSpark 2.2.5, in alternating rounds.

    python benchmarks/control.py [--rounds 5] [--nodes 1000] [--many 10000] [--no-upstream]

The server has a process of its own, and so has each half of the nodes. Three cases:

* registering, `--nodes` of them: from the moment in which all begin to connect until the last one holds the addresses of all. Ours
  speak the real protocol (both sides prove themselves, every frame is checked); 2.2.5's are its own `Client`, a thread for each,
  and come eight at a time, since its server loses those that come all at once;
* registering, `--many` of them, ours only (its server waits with `select`, which ends at 1,023 connections): nodes check that the
  announcement is there and whole, but do not decode it, since two cores would be at that for minutes;
* events: the nodes of the first case train. The server has the real bookkeeping of a feed behind it, and every node reports its
  progress as often as nodes of such a cluster do, and prints a line every ten seconds. Heartbeats are the kernel's (TCP
  keepalive), so what they cost is in the CPU time of idle nodes.

CPU seconds and memory are the server's own, the imports before the first connection left out.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

from report import Measurement, measure, print_table, write_results

HERE = Path(__file__).resolve().parent
PROCESSES = 2
OURS, UPSTREAM = "ours", "upstream 2.2.5"


def main() -> None:
    """Measure, print a table for each case, and write the results."""
    options = _parse()
    measurements = _registering(options.nodes, options.rounds, upstream=options.upstream)
    if options.many:
        measurements += _registering(options.many, options.many_rounds, upstream=False)
    measurements += _events(options.nodes, options.watch_s)
    print(f"\nwritten: {write_results('control', measurements, master='none', **vars(options))}")


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="rounds of either side (default 5)")
    parser.add_argument("--nodes", type=int, default=1000, help="nodes (default 1000)")
    parser.add_argument("--many", type=int, default=10_000, help="nodes of the second case; 0 leaves it out (default 10000)")
    parser.add_argument("--many-rounds", type=int, default=2, help="rounds of the second case (default 2)")
    parser.add_argument("--watch-s", type=float, default=10.0, help="seconds of each look at the cost of a running cluster")
    parser.add_argument("--no-upstream", dest="upstream", action="store_false", help="without TensorFlowOnSpark 2.2.5")
    return parser.parse_args()


class Process:
    """A server or a part of the nodes: answers a line of JSON for each line that it is sent; a context manager."""

    def __init__(self, side: str, **settings: Any) -> None:
        script = HERE / ("control_ours.py" if side == OURS else "control_upstream.py")
        self._process = subprocess.Popen(
            [_interpreter(side), str(script), json.dumps(settings)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
            env={**os.environ, "TFOS_SERVER_HOST": "127.0.0.1", "PYTHONPATH": os.pathsep.join([str(HERE), str(HERE.parent)])},
        )
        self.first = self._answer()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()

    def ask(self, what: str) -> Any:
        """Say a line and wait for the answer."""
        self.say(what)
        return self._answer()

    def say(self, what: str) -> None:
        """Say a line; the answer is for `answer`."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{what}\n")

    def answer(self) -> Any:
        """The answer to what was said."""
        return self._answer()

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"a process of the benchmark ended with code {self._process.wait(20)}")
        return json.loads(line)


def _interpreter(side: str) -> str:
    if side == OURS:
        return sys.executable
    from upstream import install

    return str(install())


def _registering(nodes: int, rounds: int, *, upstream: bool) -> list[Measurement]:
    case = f"{nodes:,} nodes register"
    light = nodes > 2000
    found: dict[str, list[dict[str, float]]] = {}
    for _ in range(rounds):
        for side in (OURS, *((UPSTREAM,) if upstream else ())):
            found.setdefault(side, []).append(_register_once(side, nodes, light=light))
    measurements: list[Measurement] = []
    for name, unit in (("seconds", "s"), ("cpu_s", "CPU s of the server"), ("mib_sent", "MiB sent"), ("mib", "MiB of the server")):
        rows = [measure(case, side, [entry[name] for entry in entries], unit=unit) for side, entries in found.items()]
        measurements += rows
        print_table(f"{case}: {unit}", [(row, None if row is rows[0] else rows[0]) for row in rows])
    return measurements


def _register_once(side: str, nodes: int, *, light: bool) -> dict[str, float]:
    with Process(side, role="server", nodes=nodes) as server:
        halves = _halves(side, nodes, server, light=light)
        try:
            for half in halves:
                half.say("register")
            started = time.perf_counter()
            ends = [half.answer() for half in halves]
            seconds = time.perf_counter() - started
            usage = server.ask("usage")
        finally:
            _close(halves)
    assert sum(end["complete"] for end in ends) == nodes, ends
    return {"seconds": seconds, **usage, "mib_sent": sum(end["received"] for end in ends) / 2**20}


def _halves(side: str, nodes: int, server: Process, *, light: bool) -> list[Process]:
    size = nodes // PROCESSES
    return [
        Process(side, role="nodes", first=number * size, count=size, nodes=nodes, light=light, **server.first)
        for number in range(PROCESSES)
    ]


def _close(processes: list[Process]) -> None:
    threads = [threading.Thread(target=process.__exit__, args=(None, None, None)) for process in processes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _events(nodes: int, watch_s: float) -> list[Measurement]:
    case = f"{nodes:,} nodes, cost of the driver"
    shares: dict[str, list[float]] = {"idle": [], "training": []}
    with Process(OURS, role="server", nodes=nodes) as server:
        halves = _halves(OURS, nodes, server, light=False)
        try:
            for half in halves:
                half.say("register")
            for half in halves:
                half.answer()
            for name, seen in shares.items():
                for half in halves:
                    half.ask(name)
                for share in _shares(server, watch_s):
                    seen.append(share)
        finally:
            _close(halves)
    measurements = [measure(case, name, seen, unit="% of a core") for name, seen in shares.items()]
    print_table(case, [(row, None) for row in measurements])
    return measurements


def _shares(server: Process, watch_s: float) -> Iterator[float]:
    for _ in range(3):
        before = server.ask("usage")["cpu_s"]
        started = time.perf_counter()
        time.sleep(watch_s)
        yield 100 * (server.ask("usage")["cpu_s"] - before) / (time.perf_counter() - started)


if __name__ == "__main__":
    main()
