"""Which part of a GPU in MIG mode a process computes on. Pure.

The list of compute processes (`nvidia-smi --query-compute-apps`) names the whole GPU (driver 590); only the long report,
`nvidia-smi -q`, has the numbers of the instances.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ("part_users",)


@dataclass(slots=True, kw_only=True)
class _Report:
    """What the report says of one GPU: instances (GPU, compute) to the number of a part, and the processes on them."""

    uuid: str = ""
    parts: dict[tuple[str, str], str] = field(default_factory=dict)
    processes: list[tuple[tuple[str, str], str, str]] = field(default_factory=list)


def part_users(report: str) -> Mapping[str, Mapping[str, str]]:
    """UUID of a GPU -> number of a part, as in `nvidia-smi -L` -> the first process that computes there.

    A GPU is left out when one of its processes can not be placed, so that nobody takes its part for free.

    Args:
        report: of `nvidia-smi -q`; a text of another form gives an empty mapping.
    """
    users: dict[str, dict[str, str]] = {}
    for gpu in _reports(report):
        if not gpu.uuid or any(instances not in gpu.parts for instances, _, _ in gpu.processes):
            continue
        found: dict[str, str] = {}
        for instances, pid, name in gpu.processes:
            found.setdefault(gpu.parts[instances], f"process {pid} ({name.rpartition('/')[2] or 'unknown'})")
        users[gpu.uuid] = found
    return users


def _reports(report: str) -> list[_Report]:
    """One for each GPU. In the section of a part it is `GPU Instance ID`, and in that of a process `GPU instance ID`."""
    reports: list[_Report] = []
    index = gpu_instance = compute_instance = pid = ""
    for line in report.splitlines():
        if line.startswith("GPU "):
            reports.append(_Report())
            continue
        key, colon, value = (text.strip() for text in line.partition(":"))
        if not colon or not reports:
            continue
        gpu = reports[-1]
        match key:
            case "GPU UUID":
                gpu.uuid = value
            case "Index":
                index = value
            case "GPU Instance ID" | "GPU instance ID":
                gpu_instance = value
            case "Compute Instance ID":
                gpu.parts[gpu_instance, value] = index
            case "Compute instance ID":
                compute_instance = value
            case "Process ID":
                pid = value
            case "Name" if pid:
                gpu.processes.append(((gpu_instance, compute_instance), pid, value))
                pid = ""
            case _:
                pass
    return reports
