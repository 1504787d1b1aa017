"""What a node tells about itself when it registers."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from tfos_core.errors import ProtocolError
from tfos_core.json_text import parse_json
from tfos_core.reservation.messages import MESSAGE_LIMIT_BYTES
from tfos_core.topology import Role

__all__ = ("NodeRecord", "deflated", "inflated")

_MOST_GPUS = 1024
#: What the records of all nodes may come to when they are text again.
_MOST_TEXT_BYTES = 16 * MESSAGE_LIMIT_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRecord:
    """One registered node.

    `port` is the node's TensorFlow port, `pid` the process that owns the node on `host`, `generation` the cluster it was started
    for (default: empty), `tb_port` the port of its TensorBoard (default: none), `gpus` what its CUDA_VISIBLE_DEVICES names
    (default: none).
    """

    executor_id: int
    role: Role
    index: int
    host: str
    port: int
    pid: int
    tb_port: int | None = None
    generation: str = ""
    gpus: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """`role:index`, as in `worker:0`."""
        return f"{self.role}:{self.index}"

    @property
    def identity(self) -> str:
        """For people: which process this is."""
        return f"{self.name} (executor {self.executor_id}, {self.host}, port {self.port}, pid {self.pid})"

    def to_dict(self) -> dict[str, Any]:
        """The JSON object that `from_dict` takes."""
        return asdict(self) | {"role": str(self.role), "gpus": list(self.gpus)}

    @classmethod
    def from_dict(cls, data: object) -> NodeRecord:
        """A record out of a JSON object.

        Raises:
            ProtocolError: a field is missing, unknown, or has a value that no node can have.
        """
        if not isinstance(data, Mapping):
            raise ProtocolError(f"a node record is a JSON object, not {type(data).__name__}")
        unknown = sorted(str(key) for key in data.keys() - _FIELDS)
        if unknown:
            raise ProtocolError(f"a node record has no field {', '.join(unknown)[:80]!r}")
        role = data.get("role")
        if not isinstance(role, str) or role not in _ROLES:
            raise ProtocolError(f"a node record has role {role!r:.40}, which is none of {', '.join(Role)}")
        tb_port = None if data.get("tb_port") is None else _integer(data, "tb_port", 1, 65535)
        return cls(
            executor_id=_integer(data, "executor_id", 0),
            role=Role(role),
            index=_integer(data, "index", 0),
            host=_text(data, "host", 1, 255),
            port=_integer(data, "port", 0, 65535),
            pid=_integer(data, "pid", 0),
            tb_port=tb_port,
            generation=_text(data, "generation", 0, 200) if "generation" in data else "",
            gpus=_texts(data, "gpus", most=_MOST_GPUS, longest=200),
        )


_FIELDS = frozenset(field.name for field in fields(NodeRecord))
_ROLES = frozenset(Role)


def deflated(records: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The fields of a message for so many records. They resemble each other, so that a tenth of the text is about enough."""
    text = json.dumps(records, separators=(",", ":")).encode("ascii")
    return {"deflated": base64.b64encode(zlib.compress(text)).decode("ascii")}


def inflated(message: Mapping[str, Any]) -> object:
    """What `deflated` was given.

    Raises:
        ProtocolError: the message holds nothing of the kind.
    """
    try:
        reader = zlib.decompressobj()
        text = reader.decompress(base64.b64decode(message["deflated"], validate=True), _MOST_TEXT_BYTES)
        if not reader.eof:
            raise ValueError("it is cut short, or far too long")
        return parse_json(text)
    except (KeyError, TypeError, ValueError, zlib.error) as exc:
        raise ProtocolError(f"the reservation server sent {message.get('op')!r} without readable nodes ({exc})") from exc


def _integer(data: Mapping[str, Any], name: str, least: int, most: int = 2**31 - 1) -> int:
    value = data.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise ProtocolError(f"a node record has {name} {value!r:.40}, which is no integer from {least} to {most}")
    return value


def _texts(data: Mapping[str, Any], name: str, *, most: int, longest: int) -> tuple[str, ...]:
    values = data.get(name, ())
    if not isinstance(values, list | tuple) or len(values) > most:
        raise ProtocolError(f"a node record has {name} {values!r:.40}, which is no list of at most {most} texts")
    return tuple(_text({name: value}, name, 1, longest) for value in values)


def _text(data: Mapping[str, Any], name: str, least: int, most: int) -> str:
    value = data.get(name)
    if not isinstance(value, str) or not least <= len(value) <= most or not value.isprintable():
        raise ProtocolError(f"a node record has {name} {value!r:.40}, which is no text of {least} to {most} printable characters")
    return value
