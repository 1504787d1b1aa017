"""What runs on every executor: one barrier task, which looks at its machine and tries to reach the driver and all others."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tfos_core.probe.imports import TENSORFLOW, try_imports
from tfos_core.probe.machine import machine_facts
from tfos_core.probe.places import try_reading, try_writing
from tfos_core.probe.reach import Listener, reach, reach_all

__all__ = ("ProbeTask",)

#: Every executor tries so many of those behind it, so that a thousand of them do not make a million connections.
MOST_PEERS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeTask:
    """Probes one executor; yields one JSON text.

    Attributes:
        driver: where the driver's listener is.
        modules: what must be importable beside TensorFlow, as `module:function`.
        reads, writes: paths of the job.
        environment: variables that the job sets for its nodes.
    """

    driver: tuple[str, int]
    modules: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    environment: Mapping[str, str]

    def __call__(self, partition: Iterable[int]) -> Iterator[str]:
        from pyspark import BarrierTaskContext

        context = BarrierTaskContext.get()
        index = next(iter(partition))
        with Listener() as listener:
            to_driver = reach(*self.driver)
            local = _address_towards(*self.driver)
            peers = [json.loads(text) for text in context.allGather(json.dumps([local, listener.port]))]
            tried = [(index + step) % len(peers) for step in range(1, min(len(peers), MOST_PEERS + 1))]
            others = reach_all({str(peer): (peers[peer][0], peers[peer][1]) for peer in tried})
            # The others may still be trying to reach this one.
            context.barrier()
        variables = {**os.environ, **self.environment}
        facts = machine_facts(variables)
        granted = context.resources().get("gpu")
        facts |= {
            "index": index,
            "address": local,
            "executor": _executor_name(Path.cwd()),
            "driver": to_driver.to_dict(),
            "peers": {peer: reached.to_dict() for peer, reached in others.items()},
            "granted_gpus": list(granted.addresses) if granted is not None else [],
            "imports": try_imports((TENSORFLOW, *self.modules), variables),
            "reads": try_reading(self.reads),
            "writes": try_writing(self.writes),
        }
        yield json.dumps(facts)


def _address_towards(host: str, port: int) -> str:
    """The address of this host that it uses on the way to the driver, which is what a node tells the others; sends nothing."""
    try:
        family, kind, proto, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind, proto) as towards:
            towards.connect(address)
            return str(towards.getsockname()[0])
    except OSError:
        return socket.gethostname()


def _executor_name(folder: Path) -> str:
    """What Spark calls this executor, by its working folder; empty where the folder does not tell."""
    is_standalone = folder.name.isdecimal() and folder.parent.name.startswith("app-")
    return f"executor {folder.name}" if is_standalone else folder.name if folder.name.startswith("container_") else ""
