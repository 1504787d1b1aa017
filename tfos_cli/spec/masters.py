"""What kind of cluster a Spark master URL names."""

from __future__ import annotations

import ipaddress
import re
from enum import StrEnum

__all__ = ("MasterKind", "is_loopback", "local_cluster", "master_kind", "standalone_hosts")

_LOCAL_CLUSTER = re.compile(r"local-cluster\[\s*([0-9]+)\s*,\s*([0-9]+)\s*,\s*([0-9]+)\s*\]\Z")


class MasterKind(StrEnum):
    """The cluster managers, as far as rules and submission tell them apart."""

    EMBEDDED = "embedded"
    LOCAL = "local"
    LOCAL_CLUSTER = "local-cluster"
    STANDALONE = "standalone"
    YARN = "yarn"
    KUBERNETES = "kubernetes"
    UNKNOWN = "unknown"


def master_kind(master: str | None) -> MasterKind:
    """The kind of a master URL; None is the embedded default."""
    if master is None:
        return MasterKind.EMBEDDED
    if master == "yarn":
        return MasterKind.YARN
    if master == "local" or re.match(r"local\[[^\]]*\]\Z", master):
        return MasterKind.LOCAL
    if _LOCAL_CLUSTER.match(master):
        return MasterKind.LOCAL_CLUSTER
    for prefix, kind in (("spark://", MasterKind.STANDALONE), ("k8s://", MasterKind.KUBERNETES)):
        if master.startswith(prefix) and len(master) > len(prefix):
            return kind
    return MasterKind.UNKNOWN


def local_cluster(master: str) -> tuple[int, int, int] | None:
    """Executors, cores of each and MiB of each of `local-cluster[N,C,M]`; None for other masters."""
    match = _LOCAL_CLUSTER.match(master)
    return (int(match[1]), int(match[2]), int(match[3])) if match else None


def standalone_hosts(master: str) -> tuple[str, ...]:
    """The hosts of `spark://host:port[,host:port...]`."""
    addresses = master.removeprefix("spark://").split(",")
    return tuple(address.rpartition(":")[0].strip("[]") or address for address in addresses)


def is_loopback(host: str) -> bool:
    """Whether a host name or address is this machine only."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
