"""A `tf.data.Dataset` of whole batches of a feed. The element structure is described in `elements`.

One iteration is one epoch of one train call (or the whole feed). The last batch of an iteration may be short. After the end of the
feed an iteration is empty. Cardinality is unknown and nothing repeats, so tf.distribute itself pads a node that has run out.
With `equal_steps` all nodes get the same number of whole batches instead (`tfos_core.feed.equal_steps`).
Auto-sharding is off: every node already has its own rows.

An iteration that is abandoned (`break`, `take(n)`) leaves the rest of its epoch to the next one; rows that it had taken, and those
that tf.data had prefetched, count as consumed. Starting an iteration ends an earlier one that still waits.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tfos_core.errors import ConfigError, FeedError
from tfos_core.feed.elements import arrays, describe_mapped, mapped_arrays
from tfos_core.feed.hub import FeedHub
from tfos_core.feed.inbox import Mark, Piece

__all__ = ("BatchSource", "make_dataset")


def make_dataset(
    hub: FeedHub,
    batch_size: int,
    *,
    mapping: Mapping[str, str] | None,
    all_epochs: bool,
    drop_remainder: bool,
    allow_empty: bool = False,
) -> Any:
    """Wait for the first block (or for the driver's word that none comes), and make the dataset.

    Raises:
        ConfigError: `batch_size` is below 1.
        FeedError: no row was fed to any node, or rows can not be tensors.
    """
    if batch_size < 1:
        raise ConfigError(f"batch_size is {batch_size}", "Use 1 or more.")
    spec = hub.await_spec()
    if spec is None:
        raise FeedError(
            "no row was fed to any node, so the dataset has no element structure",
            "Is the data empty? train() has to be called with at least one row.",
            hub.node,
        )
    if mapping is not None:
        spec = describe_mapped(spec, mapping)
    if "problem" in spec:
        raise FeedError(f"rows can not be batched into tensors: {spec['problem']}", spec.get("hint"), hub.node)
    import tensorflow as tf

    signature = [
        tf.TensorSpec(shape=[None, *tensor["shape"]], dtype=tf.as_dtype(tensor["dtype"]), name=None) for tensor in spec["tensors"]
    ]
    source = BatchSource(
        hub=hub,
        batch_size=batch_size,
        spec=spec,
        mapping=mapping,
        all_epochs=all_epochs,
        drop_remainder=drop_remainder,
        allow_empty=allow_empty,
    )
    dataset = tf.data.Dataset.from_generator(source, output_signature=_structured(spec, signature))
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    return dataset.with_options(options)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchSource:
    """Calling it starts an iteration over batches (arrays in the structure of `spec`)."""

    hub: FeedHub
    batch_size: int
    spec: Mapping[str, Any]
    mapping: Mapping[str, str] | None
    all_epochs: bool
    drop_remainder: bool
    allow_empty: bool = False

    def __call__(self) -> Iterator[Any]:
        """One iteration."""
        equal = self.hub.equal_steps
        if equal is None:
            batches = self._batches()
        else:
            parts = equal.batches(self.batch_size, all_epochs=self.all_epochs, allow_empty=self.allow_empty)
            batches = (self._element([self._arrays(piece) for piece in pieces]) for pieces in parts)
        for batch in batches:
            self.hub.count_step()
            yield batch

    def _batches(self) -> Iterator[Any]:
        """The batches of this node's own rows."""
        iteration = self.hub.inbox.begin_iteration()
        pieces: list[list[np.ndarray[Any, Any]]] = []
        missing = self.batch_size
        while True:
            taken = self.hub.inbox.take(missing, iteration=iteration)
            if isinstance(taken, Piece):
                pieces.append(self._arrays(taken))
                missing -= taken.stop - taken.start
                if missing == 0:
                    yield self._element(pieces)
                    pieces, missing = [], self.batch_size
            elif taken is Mark.SUPERSEDED:
                return
            elif taken is Mark.FEED or (taken is Mark.EPOCH and not self.all_epochs):
                break
        if pieces and not self.drop_remainder:
            yield self._element(pieces)

    def _arrays(self, piece: Piece) -> list[np.ndarray[Any, Any]]:
        try:
            if self.mapping is not None:
                found = mapped_arrays(piece.block, piece.start, piece.stop, self.mapping)
            else:
                found = arrays(piece.block, piece.start, piece.stop)
            self._check(found)
        except FeedError as exc:
            raise FeedError(exc.message, exc.hint, self.hub.node, piece.stream.partition) from exc
        return found

    def _check(self, found: Sequence[np.ndarray[Any, Any]]) -> None:
        tensors = self.spec["tensors"]
        if len(found) != len(tensors):
            raise FeedError(f"a row has {len(found)} fields, but the first one had {len(tensors)}")
        for array, tensor in zip(found, tensors, strict=True):
            if list(array.shape[1:]) != tensor["shape"]:
                raise FeedError(
                    f"values of {tensor['name']!r} have shape {list(array.shape[1:])}, but the first ones had {tensor['shape']}",
                    "Pad them to one length in Spark, or use next_batch().",
                )

    def _element(self, pieces: Sequence[Sequence[np.ndarray[Any, Any]]]) -> Any:
        columns = pieces[0] if len(pieces) == 1 else [np.concatenate(parts) for parts in zip(*pieces, strict=True)]
        typed = [
            column if tensor["dtype"] == "string" else column.astype(tensor["dtype"], copy=False)
            for column, tensor in zip(columns, self.spec["tensors"], strict=True)
        ]
        return _structured(self.spec, typed)


def _structured(spec: Mapping[str, Any], values: Sequence[Any]) -> Any:
    if spec["form"] == "single":
        return values[0]
    if spec["form"] == "dict":
        return {tensor["name"]: value for tensor, value in zip(spec["tensors"], values, strict=True)}
    return tuple(values)
