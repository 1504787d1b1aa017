"""Hosts with addresses of their own on one machine: network namespaces, joined by a cable that leads nowhere else (Linux, root)."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from testbed.processes import kill_all, read_process

__all__ = ("Host", "TwoHosts", "why_no_hosts")

PREFIX = "tft"
#: Of the range for tests (RFC 2544), so that it is nobody's real network; it exists between the two only.
ADDRESSES = ("198.18.77.1", "198.18.77.2")
NAMES = ("host-a", "host-b")
CABLE = "cable"
#: A hardware address that no device has.
NOBODY = "02:00:00:00:00:99"
DEADLINE_S = 20.0
FILES = Path("/etc/netns")


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """A namespace with a loopback and one more address, and a host name of its own."""

    name: str
    namespace: str
    address: str

    @property
    def prefix(self) -> tuple[str, ...]:
        """What to put before a command that is to run there; the process is the command itself."""
        return ("ip", "netns", "exec", self.namespace, "unshare", "--uts", "sh", "-c", 'hostname "$0" && exec "$@"', self.name)

    def run(self, command: Sequence[str], *, timeout_s: float = 30.0) -> str:
        """The output of a command that runs there.

        Raises:
            AssertionError: it failed.
        """
        done = subprocess.run([*self.prefix, *command], capture_output=True, text=True, timeout=timeout_s, check=False)
        assert done.returncode == 0, f"{command} on {self.name}: {done.stderr}"
        return done.stdout


class TwoHosts:
    """Two hosts that reach each other and nothing else; a context manager that removes both and all that runs there."""

    def __init__(self) -> None:
        self._mark = f"{PREFIX}{os.getpid()}"
        pairs = zip("ab", NAMES, ADDRESSES, strict=True)
        self.hosts = tuple(Host(name=name, namespace=f"{self._mark}{letter}", address=address) for letter, name, address in pairs)

    def __enter__(self) -> Self:
        _sweep()
        try:
            for host in self.hosts:
                _ip("netns", "add", host.namespace)
                self._write_files(host)
            first, second = (host.namespace for host in self.hosts)
            _ip("link", "add", CABLE, "netns", first, "type", "veth", "peer", "name", CABLE, "netns", second)
            for host in self.hosts:
                _ip("-n", host.namespace, "address", "add", f"{host.address}/24", "dev", CABLE)
                for device in ("lo", CABLE):
                    _ip("-n", host.namespace, "link", "set", device, "up")
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def cut(self) -> None:
        """Lose every packet between the two, as a broken switch does: nobody is told."""
        for host, other in self._both_ways():
            _ip("-n", host.namespace, "neigh", "replace", other.address, "lladdr", NOBODY, "nud", "permanent", "dev", CABLE)

    def mend(self) -> None:
        """Undo `cut`."""
        for host, other in self._both_ways():
            _ip("-n", host.namespace, "neigh", "del", other.address, "dev", CABLE)

    def _both_ways(self) -> tuple[tuple[Host, Host], ...]:
        first, second = self.hosts
        return (first, second), (second, first)

    def close(self) -> None:
        """Kill what runs there and remove everything. May be called twice."""
        for host in self.hosts:
            _remove(host.namespace)

    def _write_files(self, host: Host) -> None:
        """What `ip netns exec` shows as /etc/hosts and /etc/resolv.conf: both names, and no name server."""
        folder = FILES / host.namespace
        folder.mkdir(parents=True)
        lines = ["127.0.0.1 localhost", *(f"{other.address} {other.name}" for other in self.hosts)]
        (folder / "hosts").write_text("".join(f"{line}\n" for line in lines))
        (folder / "resolv.conf").write_text("")


def why_no_hosts() -> str | None:
    """Why this machine can have no such hosts, or None when it can."""
    missing = [program for program in ("ip", "unshare", "hostname") if shutil.which(program) is None]
    if missing:
        return f"there is no program {', '.join(missing)}"
    if os.geteuid() != 0:
        return "network namespaces need root"
    try:
        with TwoHosts() as pair:
            pair.hosts[0].run(["true"])
    except (AssertionError, OSError) as exc:
        return f"network namespaces are not permitted: {exc}"
    return None


def _ip(*arguments: str) -> str:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert done.returncode == 0, f"ip {' '.join(arguments)}: {done.stderr.strip()}"
    return done.stdout


def _remove(namespace: str) -> None:
    with contextlib.suppress(AssertionError):
        running = (read_process(int(pid)) for pid in _ip("netns", "pids", namespace).split())
        kill_all(process for process in running if process is not None)
        # The cable goes with either of its ends.
        _ip("netns", "delete", namespace)
    shutil.rmtree(FILES / namespace, ignore_errors=True)
    with contextlib.suppress(OSError):
        FILES.rmdir()


def _sweep() -> None:
    """Remove what a test run that was killed has left."""
    for line in _ip("netns", "list").splitlines():
        namespace = line.partition(" ")[0]
        pid = namespace[len(PREFIX) : -1]
        if namespace.startswith(PREFIX) and pid.isdigit() and read_process(int(pid)) is None:
            _remove(namespace)
