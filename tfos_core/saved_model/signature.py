"""Signatures of a SavedModel, and the choice of one; pure."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tfos_core.errors import ConfigError

__all__ = ("MetaGraph", "Signature", "TensorSpec", "choose_signature", "quoted")


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorSpec:
    """An input or output: `dtype` as TensorFlow names it, None in `shape` for an unknown size, no shape for an unknown rank."""

    name: str
    dtype: str
    shape: tuple[int | None, ...] | None
    is_dense: bool = True

    def __str__(self) -> str:
        shape = "?" if self.shape is None else ", ".join("?" if size is None else str(size) for size in self.shape)
        return f"{self.name} ({self.dtype}, [{shape}])"


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """What goes in and what comes out, in the order of their names."""

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MetaGraph:
    """One graph of a SavedModel."""

    tags: frozenset[str]
    signatures: Mapping[str, Signature]


def choose_signature(graphs: Sequence[MetaGraph], *, tags: frozenset[str], key: str, where: str) -> Signature:
    """The signature that is asked for.

    Args:
        where: the model, for messages.

    Raises:
        ConfigError: no graph has these tags, or it has no such signature; lists those that exist.
    """
    graph = next((graph for graph in graphs if graph.tags == tags), None)
    if graph is None:
        existing = ", ".join(repr(",".join(sorted(graph.tags))) for graph in graphs)
        raise ConfigError(
            f"the SavedModel {where} has no graph with tag_set {','.join(sorted(tags))!r}",
            f"It has {existing}: set tag_set to one.",
        )
    if key in graph.signatures:
        return graph.signatures[key]
    if not graph.signatures:
        raise ConfigError(
            f"the SavedModel {where} has no signatures, so nothing in it can be called",
            "Export it with model.export(path), or with tf.saved_model.save(module, path, signatures=...).",
        )
    close = difflib.get_close_matches(key, graph.signatures, n=1)
    meant = f" Did you mean {close[0]!r}?" if close else ""
    raise ConfigError(
        f"the SavedModel {where} has no signature {key!r}", f"It has {quoted(graph.signatures)}: set signature_def_key.{meant}"
    )


def quoted(names: Iterable[str]) -> str:
    """Names for a sentence."""
    return ", ".join(repr(name) for name in sorted(names))
