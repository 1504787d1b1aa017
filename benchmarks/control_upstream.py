"""The other side of `control.py`, in the environment of 2.2.5: its reservation server, or nodes that are its clients."""

from __future__ import annotations

import json
import logging
import resource
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tensorflowonspark import reservation  # type: ignore[import-not-found]

#: Its server lets ten connections wait, and leaves those beyond to hang for ever (seen with 1,000 nodes that came at once: minutes
#: later some had not been heard). So only a few connect in the same moment; ours all do.
_AT_ONCE = 4


def serve(settings: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """A server; tells what it costs when it is asked."""
    before_s, before_mib = time.process_time(), _memory_mib()
    server = reservation.Server(settings["nodes"])
    _, port = server.start()
    yield {"host": "127.0.0.1", "port": port, "secret": ""}
    for _ in sys.stdin:
        yield {"cpu_s": time.process_time() - before_s, "mib": _memory_mib() - before_mib}


def be_nodes(settings: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """A thread for each node, as soon as it is told to."""
    yield {}
    for _ in sys.stdin:
        done: list[Any] = []
        gate = threading.Semaphore(_AT_ONCE)
        threads = [
            threading.Thread(target=_be_node, args=(settings, settings["first"] + number, done, gate))
            for number in range(settings["count"])
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        yield {"complete": sum(found == settings["nodes"] for found, _ in done), "received": sum(size for _, size in done)}


def _be_node(settings: dict[str, Any], number: int, done: list[Any], gate: threading.Semaphore) -> None:
    meta = {
        "executor_id": number,
        "host": "10.20.30.40",
        "job_name": "worker",
        "task_index": number,
        "port": 30000 + number,
        "tb_pid": 0,
        "tb_port": 0,
        "addr": f"/tmp/pymp-{number:08x}/listener-abcdefgh",
        "authkey": number.to_bytes(16, "big"),
    }
    with gate:
        client = reservation.Client((settings["host"], settings["port"]))
        client.register(meta)
    found = client.await_reservations()
    # What came over its socket: the pickled list, its length, and small answers that do not count.
    done.append((len(found), 4 + len(reservation.pickle.dumps(found))))
    client.close()


def _memory_mib() -> float:
    status = Path("/proc/self/status").read_text()
    peak = next(line for line in status.splitlines() if line.startswith("VmHWM"))
    return int(peak.split()[1]) / 1024


def main() -> None:
    """Be what the settings say, and answer each line of stdin."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    logging.disable(logging.INFO)
    settings = json.loads(sys.argv[1])
    for answer in serve(settings) if settings["role"] == "server" else be_nodes(settings):
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
