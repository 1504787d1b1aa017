"""The signatures in a `saved_model.pb`, read without TensorFlow; pure.

The driver needs the types of a model to plan a query, and need not have TensorFlow for that. Field numbers:

    SavedModel      meta_graphs = 2
    MetaGraphDef    meta_info_def = 1, signature_def = 5 (map)
    MetaInfoDef     tags = 4
    SignatureDef    inputs = 1 (map), outputs = 2 (map)
    TensorInfo      name = 1, dtype = 2, tensor_shape = 3, coo_sparse = 4, composite_tensor = 5
    TensorShape     dim = 2, unknown_rank = 3;  Dim: size = 1
"""

from __future__ import annotations

from collections.abc import Iterator

from tfos_core.saved_model.signature import MetaGraph, Signature, TensorSpec

__all__ = ("MalformedModelError", "parse_saved_model")

#: tensorflow.DataType -> the name that `tf.dtypes` gives it.
_DTYPES = {
    1: "float32",
    2: "float64",
    3: "int32",
    4: "uint8",
    5: "int16",
    6: "int8",
    7: "string",
    8: "complex64",
    9: "int64",
    10: "bool",
    14: "bfloat16",
    17: "uint16",
    18: "complex128",
    19: "float16",
    20: "resource",
    21: "variant",
    22: "uint32",
    23: "uint64",
}
#: TensorFlow's own entry for what runs when the model is loaded; nobody can call it.
_INTERNAL = "__saved_model_"


class MalformedModelError(ValueError):
    """These bytes are no SavedModel."""


def parse_saved_model(data: bytes) -> tuple[MetaGraph, ...]:
    """The graphs of a SavedModel with their tags and signatures.

    Raises:
        MalformedModelError: it is none.
    """
    graphs = tuple(_meta_graph(body) for number, body in _fields(memoryview(data)) if number == 2 and isinstance(body, memoryview))
    if not graphs:
        raise MalformedModelError("it holds no graph")
    return graphs


def _meta_graph(data: memoryview) -> MetaGraph:
    tags: frozenset[str] = frozenset()
    signatures: dict[str, Signature] = {}
    for number, body in _messages(data):
        if number == 1:
            tags = frozenset(_text(tag) for field, tag in _messages(body) if field == 4)
        elif number == 5:
            key, value = _entry(body)
            if not key.startswith(_INTERNAL):
                signatures[key] = _signature(value)
    return MetaGraph(tags=tags, signatures=signatures)


def _signature(data: memoryview) -> Signature:
    inputs: list[TensorSpec] = []
    outputs: list[TensorSpec] = []
    for number, body in _messages(data):
        if number in (1, 2):
            name, info = _entry(body)
            (inputs if number == 1 else outputs).append(_tensor(name, info))
    return Signature(
        inputs=tuple(sorted(inputs, key=lambda spec: spec.name)), outputs=tuple(sorted(outputs, key=lambda spec: spec.name))
    )


def _tensor(name: str, data: memoryview) -> TensorSpec:
    dtype, is_dense = "float32", True
    shape: tuple[int | None, ...] | None = None
    for number, body in _fields(data):
        if number == 2 and isinstance(body, int):
            dtype = _DTYPES.get(body, f"type {body}")
        elif number == 3 and isinstance(body, memoryview):
            shape = _shape(body)
        elif number in (4, 5):
            is_dense = False
    return TensorSpec(name=name, dtype=dtype, shape=shape, is_dense=is_dense)


def _shape(data: memoryview) -> tuple[int | None, ...] | None:
    sizes: list[int | None] = []
    for number, body in _fields(data):
        if number == 3 and body:
            return None
        if number == 2 and isinstance(body, memoryview):
            size = next((value for field, value in _fields(body) if field == 1 and isinstance(value, int)), 0)
            sizes.append(None if size >= 1 << 63 else size)  # -1 is unknown, as 64 bits
    return tuple(sizes)


def _entry(data: memoryview) -> tuple[str, memoryview]:
    """A map entry."""
    key, value = "", memoryview(b"")
    for number, body in _messages(data):
        if number == 1:
            key = _text(body)
        elif number == 2:
            value = body
    return key, value


def _text(data: memoryview) -> str:
    try:
        return bytes(data).decode()
    except UnicodeDecodeError as exc:
        raise MalformedModelError("a name in it is not text") from exc


def _messages(data: memoryview) -> Iterator[tuple[int, memoryview]]:
    return ((number, body) for number, body in _fields(data) if isinstance(body, memoryview))


def _fields(data: memoryview) -> Iterator[tuple[int, memoryview | int]]:
    """Field numbers with their bytes or varints; what has another wire type is skipped."""
    position, end = 0, len(data)
    while position < end:
        tag, position = _varint(data, position)
        kind = tag & 7
        if kind == 0:
            value, position = _varint(data, position)
            yield tag >> 3, value
            continue
        if kind == 2:
            size, position = _varint(data, position)
        elif kind in (1, 5):
            size = 8 if kind == 1 else 4
        else:
            raise MalformedModelError("it is no SavedModel")
        if position + size > end:
            raise MalformedModelError("it ends too early")
        if kind == 2:
            yield tag >> 3, data[position : position + size]
        position += size


def _varint(data: memoryview, position: int) -> tuple[int, int]:
    value = shift = 0
    while position < len(data) and shift < 70:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFF_FFFF_FFFF_FFFF, position
        shift += 7
    raise MalformedModelError("it ends too early")
