"""Whether a Standalone Master answers at all, found in seconds: Spark itself gives up after a minute."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Sequence

from tfos_cli.submit.errors import SubmitError

__all__ = ("master_addresses", "require_reachable")

_DEFAULT_PORT = 7077


def master_addresses(master: str) -> tuple[tuple[str, int], ...]:
    """Host and port of every Master of `spark://host:port,host:port`; nothing for other kinds of masters."""
    scheme, separator, rest = master.partition("://")
    if not separator or scheme != "spark":
        return ()
    found = []
    for entry in rest.split(","):
        host, _, port = entry.strip().rpartition(":")
        found.append((host.strip("[]"), int(port)) if host and port.isdigit() else (entry.strip(), _DEFAULT_PORT))
    return tuple(found)


def require_reachable(master: str, *, timeout: float = 8.0) -> None:
    """Connect to the port of every Master at the same time; one that answers is enough.

    Args:
        timeout: seconds for all of it, the look-up of names included.

    Raises:
        SubmitError: none answered; says why for each.
    """
    addresses = master_addresses(master)
    if not addresses:
        return
    probes = _Probes(addresses)
    if not probes.any_answers(timeout):
        reasons = "; ".join(f"{host}:{port}: {reason}" for (host, port), reason in probes.reasons().items())
        raise SubmitError(
            f"the Spark master {master} can not be reached ({reasons})",
            "Check spark.master, and that the Master runs and its port is open from this machine.",
        )


class _Probes:
    def __init__(self, addresses: Sequence[tuple[str, int]]) -> None:
        self._reasons: dict[tuple[str, int], str | None] = dict.fromkeys(addresses)
        self._changed = threading.Condition()
        self._answered = False

    def any_answers(self, timeout: float) -> bool:
        """Whether one connection succeeds; returns as soon as one has, or all have failed."""
        until = time.monotonic() + timeout
        for address in self._reasons:
            # daemon threads: a look-up of a name can not be interrupted
            threading.Thread(target=self._probe, args=(address, timeout), daemon=True).start()
        with self._changed:
            self._changed.wait_for(lambda: self._answered or all(self._reasons.values()), until - time.monotonic())
            return self._answered

    def reasons(self) -> dict[tuple[str, int], str]:
        """Why each address did not answer."""
        with self._changed:
            return {address: reason or "no answer" for address, reason in self._reasons.items()}

    def _probe(self, address: tuple[str, int], timeout: float) -> None:
        reason = ""
        try:
            socket.create_connection(address, timeout=timeout).close()
        except OSError as exc:
            reason = exc.strerror or str(exc)
        with self._changed:
            if reason:
                self._reasons[address] = reason
            else:
                self._answered = True
            self._changed.notify_all()
