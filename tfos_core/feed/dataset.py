"""A `tf.data.Dataset` of whole batches of a feed. The element structure is described in `elements`.

One iteration is one epoch of one train call (or the whole feed). The last batch of an iteration may be short. After the end of the
feed an iteration is empty. Cardinality is unknown and nothing repeats, so tf.distribute itself pads a node that has run out.
With `equal_steps` all nodes get the same number of whole batches instead (`tfos_core.feed.equal_steps`).
Auto-sharding and autotuning are off, see `node_options`.

An iteration that is abandoned (`break`, `take(n)`) leaves the rest of its epoch to the next one; rows that it had taken count as
consumed: those of a batch that is made in advance, or of up to as many batches again as were used, 32 at most. Of an epoch from the
cache there may be 64 from the start. Starting an iteration ends an earlier one that still waits.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tfos_core.dataset_options import node_options
from tfos_core.errors import ConfigError, FeedError
from tfos_core.feed.elements import arrays, describe_mapped, mapped_arrays
from tfos_core.feed.hub import FeedHub
from tfos_core.feed.inbox import Mark, Piece
from tfos_core.feed.legacy_keras import count_every_epoch
from tfos_core.feed.pace import MOST_FED, MOST_REPLAYED, Pace
from tfos_core.feed.scattered import Scattered, byte_rows

__all__ = ("BatchSource", "make_dataset")

Array = np.ndarray[Any, Any]

#: Stacks of batches that are ready while another one is used.
_PREFETCHED = 1
#: Bytes that one call into Python gives to tf.data at most.
_STACK_BYTES = 8 << 20
#: Bytes. TensorFlow takes arrays that lie so as they are, and copies others.
_ALIGNMENT = 64


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
    count_every_epoch()
    import tensorflow as tf

    signature = [
        tf.TensorSpec(shape=[None, None, *tensor["shape"]], dtype=tf.as_dtype(tensor["dtype"])) for tensor in spec["tensors"]
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
    stacks = tf.data.Dataset.from_generator(source.stacks, output_signature=_structured(spec, signature))
    # Made beside the steps of whoever iterates, and cut by its own thread: handing batch after batch from thread to thread would
    # cost more than cutting them.
    ready = stacks.prefetch(_PREFETCHED)
    dataset = ready.flat_map(_cut_tuple if spec["form"] == "tuple" else tf.data.Dataset.from_tensor_slices)
    return dataset.with_options(node_options())


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
    #: How many batches at once were right at the end of the last iteration, when it came there.
    _suggested: list[int] = field(default_factory=lambda: [1])

    def __call__(self) -> Iterator[Any]:
        """One iteration: the batches, one by one."""
        for columns, _ in self._columns(fed=1, replayed=1):
            self.hub.count_step()
            yield _structured(self.spec, columns)

    def stacks(self) -> Iterator[Any]:
        """One iteration: stacks of batches, with one more axis in front; only what has arrived is stacked."""
        for columns, batches in self._columns(fed=MOST_FED, replayed=MOST_REPLAYED):
            self.hub.count_step(batches)
            yield _structured(self.spec, [column.reshape(batches, -1, *column.shape[1:]) for column in columns])

    def _columns(self, *, fed: int, replayed: int) -> Iterator[tuple[list[Array], int]]:
        """Columns of some whole batches, or of one short one at the end, and how many batches they are."""
        equal = self.hub.equal_steps
        if equal is None:
            yield from self._own(fed, replayed)
            return
        parts = equal.batches(self.batch_size, all_epochs=self.all_epochs, allow_empty=self.allow_empty, ahead=fed)
        for pieces, batches in parts:
            yield self._joined([self._arrays(piece) for piece in pieces]), batches

    def _own(self, fed: int, replayed: int) -> Iterator[tuple[list[Array], int]]:
        """The batches of this node's own rows, up to `fed` at once, or up to `replayed` of an epoch from the cache.

        Nothing is waited for when a whole batch is there, and no other partition is begun: it may be what another node waits for.
        """
        iteration = self.hub.inbox.begin_iteration()
        pieces: list[list[Array | Scattered]] = []
        size, rows, is_over, stream = self.batch_size, 0, False, None
        pace, self._suggested[0] = Pace(self._suggested[0]), 1
        while not is_over:
            is_enough = rows >= size
            taken = self.hub.inbox.take(
                size * pace.batches - rows,
                iteration=iteration,
                unless=_at_once if is_enough else None,
                stream=stream if is_enough else None,
            )
            if isinstance(taken, Piece):
                stream = taken.stream
                pieces.append(self._arrays(taken))
                rows += taken.stop - taken.start
                if rows < size * pace.batches:
                    continue
            elif taken is Mark.SUPERSEDED:
                return
            else:
                is_over = taken is Mark.FEED or (taken is Mark.EPOCH and not self.all_epochs)
            whole, rest = divmod(rows, size)
            if whole:
                columns = self._joined(pieces)
                since = time.monotonic()
                yield [column[: whole * size] for column in columns], whole
                took_s = time.monotonic() - since
                pieces = [[column[whole * size :] for column in columns]] if rest else []
                rows = rest
                is_replay = stream is not None and stream.is_replay
                most = max(1, min(replayed if is_replay else fed, _STACK_BYTES // max(1, _row_bytes(columns) * size)))
                pace.handed_out(whole, took_s, most=most, is_replay=is_replay)
        self._suggested[0] = pace.for_next_epoch
        if rows and not self.drop_remainder:
            yield self._joined(pieces), 1

    def _arrays(self, piece: Piece) -> list[Array | Scattered]:
        try:
            if self.mapping is not None:
                found = mapped_arrays(piece.block, piece.start, piece.stop, self.mapping)
            else:
                found = arrays(piece.block, piece.start, piece.stop)
            self._check(found)
        except FeedError as exc:
            raise FeedError(exc.message, exc.hint, self.hub.node, piece.stream.partition) from exc
        return found

    def _check(self, found: Sequence[Array | Scattered]) -> None:
        tensors = self.spec["tensors"]
        if len(found) != len(tensors):
            raise FeedError(f"a row has {len(found)} fields, but the first one had {len(tensors)}")
        for array, tensor in zip(found, tensors, strict=True):
            if list(array.shape[1:]) != tensor["shape"]:
                raise FeedError(
                    f"values of {tensor['name']!r} have shape {list(array.shape[1:])}, but the first ones had {tensor['shape']}",
                    "Pad them to one length in Spark, or use next_batch().",
                )

    def _joined(self, pieces: Sequence[Sequence[Array | Scattered]]) -> list[Array]:
        """Columns of the rows of all pieces, in the types of the first block."""
        columns = [_concatenated(parts) for parts in zip(*pieces, strict=True)]
        return [
            column if tensor["dtype"] == "string" else column.astype(tensor["dtype"], copy=False)
            for column, tensor in zip(columns, self.spec["tensors"], strict=True)
        ]


def _row_bytes(columns: Sequence[Array]) -> int:
    """Bytes of a row, from the first one where values differ in length."""
    return sum(len(column[0]) if column.dtype == object else column.nbytes // len(column) for column in columns)


def _concatenated(parts: Sequence[Array | Scattered]) -> Array:
    if len(parts) == 1 and not isinstance(parts[0], Scattered):
        return parts[0]
    kind = np.result_type(*(part.dtype for part in parts))
    if kind.hasobject:
        return np.concatenate(_plain(parts))
    shape = (sum(map(len, parts)), *parts[0].shape[1:])
    size = math.prod(shape) * kind.itemsize
    room = np.empty(size + _ALIGNMENT, np.uint8)
    start = -room.ctypes.data % _ALIGNMENT
    target = room[start : start + size]
    scattered = byte_rows(parts, kind) if shape[0] and any(isinstance(part, Scattered) for part in parts) else None
    if scattered is None:
        np.concatenate(_plain(parts), out=target.view(kind).reshape(shape))
    else:
        np.concatenate(scattered, out=target.reshape(shape[0], -1))
    return target.view(kind).reshape(shape)


def _plain(parts: Sequence[Array | Scattered]) -> list[Array]:
    return [part.gathered() if isinstance(part, Scattered) else part for part in parts]


def _at_once() -> bool:
    """For a look at what is there."""
    return True


def _cut_tuple(*stacks: Any) -> Any:
    import tensorflow as tf

    return tf.data.Dataset.from_tensor_slices(stacks)


def _structured(spec: Mapping[str, Any], values: Sequence[Any]) -> Any:
    if spec["form"] == "single":
        return values[0]
    if spec["form"] == "dict":
        return {tensor["name"]: value for tensor, value in zip(spec["tensors"], values, strict=True)}
    return tuple(values)
