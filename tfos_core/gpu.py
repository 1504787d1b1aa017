"""GPUs of a host: what nvidia-smi says of them, which are free, and which node gets which. Pure: no process is started here."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from tfos_core.errors import GpuError
from tfos_core.mig import part_users

__all__ = (
    "VISIBLE_DEVICES",
    "Gpu",
    "GpuSurvey",
    "Seat",
    "assign",
    "has_hidden_users",
    "index_into",
    "parse_survey",
    "restrict",
    "shortage",
)

#: What CUDA, and so TensorFlow, reads when it starts.
VISIBLE_DEVICES = "CUDA_VISIBLE_DEVICES"

#: An idle GPU holds some memory for the driver and for a desktop; more than this, or a tenth of it, is somebody's work, in MiB.
_IDLE_MIB = 1024
_GPU_LINE = re.compile(r"GPU (\d+): (.*) \(UUID: (GPU-[^)]+)\)\s*\Z")
_SLICE_LINE = re.compile(r"\s+MIG (\S+)\s+Device\s+(\d+): \(UUID: (MIG-[^)]+)\)\s*\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """A GPU, or a part of one that MIG made.

    `id` is what CUDA_VISIBLE_DEVICES calls it: the index, or the UUID of a part. `in_use` says by what, empty when it is free.
    """

    id: str
    index: int
    uuid: str
    name: str
    is_part: bool = False
    in_use: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuSurvey:
    """The GPUs of one host at one moment, or the `problem` that kept nvidia-smi from telling."""

    gpus: tuple[Gpu, ...] = ()
    problem: str = ""

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> GpuSurvey:
        """The reverse of `to_dict`."""
        return cls(gpus=tuple(Gpu(**gpu) for gpu in data["gpus"]), problem=data["problem"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Seat:
    """Where a node runs, and how many GPUs it is to get; hosts are compared as whole strings."""

    node: str
    host: str
    gpus: int = 0


def parse_survey(listing: str, query: str, processes: str, report: str = "") -> GpuSurvey:
    """The GPUs that nvidia-smi tells of.

    Args:
        listing: of `nvidia-smi -L`: GPUs, and below each the parts that MIG made.
        query: lines `index, uuid, memory.used, memory.total, name` in MiB, without units. The name comes last, because it may hold
            anything.
        processes: lines `gpu_uuid, pid, used_gpu_memory, process_name`.
        report: of `nvidia-smi -q`, where `has_hidden_users`.
    """
    parts = _parts(listing)
    users = _users(processes)
    placed = part_users(report)
    gpus: list[Gpu] = []
    for line in query.splitlines():
        fields = [text.strip() for text in line.split(",", 4)]
        if len(fields) < 5 or not fields[0].isdecimal():
            continue
        index, uuid, used, total, name = fields
        in_use = users.get(uuid) or _held(used, total)
        if index not in parts:
            gpus.append(Gpu(id=index, index=int(index), uuid=uuid, name=name, in_use=in_use))
        for part in parts.get(index, ()):
            # Memory of the whole GPU says nothing about one part. A process under the whole that nobody can place may be anywhere.
            busy = users.get(part.uuid, "")
            if not busy and uuid in users:
                busy = placed[uuid].get(part.number, "") if uuid in placed else f"{users[uuid]}, in some part of GPU {index}"
            gpus.append(
                Gpu(id=part.uuid, index=int(index), uuid=part.uuid, name=f"{name} MIG {part.kind}", is_part=True, in_use=busy)
            )
    return GpuSurvey(gpus=tuple(gpus))


def has_hidden_users(listing: str, processes: str) -> bool:
    """Whether processes are listed under a whole GPU that has parts, so that only the long report tells where they are."""
    whole, users = "", _users(processes)
    for line in listing.splitlines():
        if gpu := _GPU_LINE.match(line):
            whole = gpu[3]
        elif _SLICE_LINE.match(line) and whole in users:
            return True
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """A part as the listing has it."""

    kind: str
    number: str
    uuid: str


def _parts(listing: str) -> dict[str, list[_Part]]:
    """Index of a GPU in MIG mode -> its parts."""
    parts: dict[str, list[_Part]] = {}
    index = ""
    for line in listing.splitlines():
        if gpu := _GPU_LINE.match(line):
            index = gpu[1]
        elif part := _SLICE_LINE.match(line):
            parts.setdefault(index, []).append(_Part(kind=part[1], number=part[2], uuid=part[3]))
    return parts


def _users(processes: str) -> dict[str, str]:
    """UUID -> the first process that computes there."""
    users: dict[str, str] = {}
    for line in processes.splitlines():
        fields = [text.strip() for text in line.split(",", 3)]
        # A container with a part of a GPU gets one line of refusals instead of the processes of the whole.
        if len(fields) == 4 and fields[0].startswith(("GPU-", "MIG-")) and fields[1].isdecimal():
            users.setdefault(fields[0], f"process {fields[1]} ({fields[3].rpartition('/')[2] or 'unknown'})")
    return users


def _held(used: str, total: str) -> str:
    """Processes of other containers are not listed, but their memory is counted."""
    if not used.isdecimal() or not total.isdecimal():
        return ""
    return f"{used} of {total} MiB are taken" if int(used) > max(_IDLE_MIB, int(total) // 10) else ""


def restrict(gpus: Sequence[Gpu], visible: str | None) -> tuple[Gpu, ...]:
    """Those that an existing CUDA_VISIBLE_DEVICES leaves, in its order and by its names; all when it is not set.

    As in CUDA, an entry that names no GPU hides all that follow.
    """
    if visible is None:
        return tuple(gpus)
    found: list[Gpu] = []
    for entry in _entries(visible):
        gpu = next((gpu for gpu in gpus if _is_named(gpu, entry)), None)
        if gpu is None:
            break
        if gpu.uuid not in [other.uuid for other in found]:
            found.append(gpu if gpu.is_part else replace(gpu, id=entry))
    return tuple(found)


def _is_named(gpu: Gpu, entry: str) -> bool:
    if entry.isdecimal():
        return gpu.index == int(entry)
    return entry.startswith(("GPU-", "MIG-")) and gpu.uuid.startswith(entry)


def _entries(visible: str) -> list[str]:
    return [entry.strip() for entry in visible.split(",") if entry.strip()]


def index_into(addresses: Sequence[str], visible: str | None) -> tuple[str, ...]:
    """Spark's addresses as CUDA_VISIBLE_DEVICES names them: positions in the list that is there already, if there is one.

    Raises:
        GpuError: an address that the list does not have.
    """
    if visible is None:
        return tuple(addresses)
    entries = _entries(visible)
    chosen = []
    for address in addresses:
        if address in entries and not address.isdecimal():
            chosen.append(address)
        elif address.isdecimal() and int(address) < len(entries):
            chosen.append(entries[int(address)])
        else:
            raise GpuError(
                f"Spark gave GPU address {address!r}, but {VISIBLE_DEVICES} is {visible!r} there, which has {len(entries)} entries",
                f"Let the discovery script of the Workers count within {VISIBLE_DEVICES}, or unset it where the Workers start.",
            )
    return tuple(chosen)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Share:
    """One host: who needs how much of what."""

    host: str
    seats: tuple[Seat, ...]
    survey: GpuSurvey
    candidates: tuple[Gpu, ...] = field(default=())

    @property
    def needed(self) -> int:
        return sum(seat.gpus for seat in self.seats)

    @property
    def free(self) -> tuple[Gpu, ...]:
        return tuple(gpu for gpu in self.candidates if not gpu.in_use)


def _share(host: str, seats: Sequence[Seat], survey: GpuSurvey) -> _Share:
    here = tuple(seat for seat in seats if seat.host == host and seat.gpus)
    # CUDA uses at most one MIG part in a process, so that nodes which need more get whole GPUs.
    whole_only = any(seat.gpus > 1 for seat in here)
    candidates = tuple(gpu for gpu in survey.gpus if not (whole_only and gpu.is_part))
    return _Share(host=host, seats=here, survey=survey, candidates=candidates)


def shortage(host: str, seats: Sequence[Seat], survey: GpuSurvey) -> tuple[str, bool]:
    """Why a host can not serve its nodes, and whether waiting may help; an empty text when it can."""
    share = _share(host, seats, survey)
    if len(share.free) >= share.needed:
        return "", False
    who = ", ".join(seat.node for seat in share.seats)
    each = f" with {share.seats[0].gpus} each" if len(share.seats) > 1 else ""
    text = f"too few GPUs on {host}: {share.needed} needed ({who}{each}), {len(share.candidates)} present"
    if survey.problem:
        return f"{text} ({survey.problem})", False
    if len(share.candidates) < share.needed:
        return text, False
    busy = "; ".join(f"GPU {gpu.id} ({gpu.name}) is in use: {gpu.in_use}" for gpu in share.candidates if gpu.in_use)
    return f"{text}, {len(share.free)} free; {busy}", True


def assign(seats: Sequence[Seat], surveys: Mapping[str, GpuSurvey], *, required: bool) -> dict[str, tuple[str, ...]]:
    """Node -> GPUs: the free ones of its host, dealt out in the order of the seats.

    Args:
        surveys: of every host that has a seat with GPUs.
        required: otherwise a node for which none is left gets none.

    Raises:
        GpuError: required, and a host has too few.
    """
    dealt: dict[str, tuple[str, ...]] = {seat.node: () for seat in seats}
    for host in dict.fromkeys(seat.host for seat in seats if seat.gpus):
        survey = surveys.get(host, GpuSurvey(problem="nobody looked"))
        lacking, _ = shortage(host, seats, survey)
        if lacking and required:
            raise GpuError(
                lacking, "Ask for fewer GPUs per node (gpus), let fewer nodes run on one host, or wait until other jobs end."
            )
        share = _share(host, seats, survey)
        left = list(share.free)
        for seat in share.seats:
            if len(left) >= seat.gpus:
                dealt[seat.node] = tuple(gpu.id for gpu in left[: seat.gpus])
                del left[: seat.gpus]
    return dealt
