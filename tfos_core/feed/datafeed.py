"""What the user's function takes rows from: the `DataFeed` of 2022, and a `tf.data.Dataset` of the same rows."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from tfos_core.errors import ConfigError, FeedError, ResultCountError
from tfos_core.feed.blocks import take_columns
from tfos_core.feed.hub import FeedHub
from tfos_core.feed.inbox import Mark, Piece, Stream
from tfos_core.feed.packing import pack_list

__all__ = ("DataFeed",)


class DataFeed:
    """Rows that Spark feeds to this node.

    Args:
        mgr: `ctx.mgr`.
        train_mode: False for inference, where every batch has to be answered with `batch_results`.
        qname_in: only 'input' exists.
        qname_out: only 'output' exists.
        input_mapping: column name -> tensor name; batches are then dicts of lists. Columns are found by name in DataFrames (and in
            Rows); fields of plain tuples are taken in lexicographic order of the column names, as
            `df.select(sorted(input_mapping)).rdd` has them.
    """

    def __init__(
        self,
        mgr: FeedHub,
        train_mode: bool = True,
        qname_in: str = "input",
        qname_out: str = "output",
        input_mapping: Mapping[str, str] | None = None,
    ) -> None:
        if not isinstance(mgr, FeedHub):
            raise ConfigError(
                f"DataFeed needs ctx.mgr, not {type(mgr).__name__}",
                "In input_mode tensorflow there is no feed: read the data in the function.",
            )
        for value, only in ((qname_in, "input"), (qname_out, "output")):
            if value != only:
                raise ConfigError(f"the queue {value!r} does not exist", f"Only {only!r} does.")
        self.train_mode = train_mode
        self._hub = mgr
        self._mapping = None if input_mapping is None else dict(sorted(input_mapping.items()))
        self._unanswered: deque[tuple[Stream, int]] = deque()
        self._batches = 0
        self._datasets: dict[tuple[int, bool, bool, bool], Any] = {}

    @property
    def input_tensors(self) -> list[str] | None:
        """The tensors of `input_mapping`, in lexicographic order of their columns."""
        return None if self._mapping is None else list(self._mapping.values())

    def next_batch(self, batch_size: int) -> Any:
        """The next `batch_size` rows: a list of rows, or with `input_mapping` a dict of tensor name -> list of values.

        Training: rows flow across partitions and epochs, and a short or empty batch comes only at the end of the feed. Inference:
        a batch never mixes partitions, so the last one of a partition may be short.

        Raises:
            FeedError: rows can not be read, or do not fit the mapping.
        """
        if batch_size < 1:
            raise ConfigError(f"batch_size is {batch_size}", "Use 1 or more.")
        if self._hub.equal_steps is not None:
            self._hub.equal_steps.opt_out()
        pieces: list[Piece] = []
        missing = batch_size
        while missing > 0:
            taken = self._hub.inbox.take(missing)
            if isinstance(taken, Piece):
                pieces.append(taken)
                missing -= taken.stop - taken.start
            elif taken is Mark.DROPPED:
                # The partition will come again: what is left of this attempt must not be answered.
                pieces, missing = [], batch_size
            elif taken is Mark.FEED or (taken is Mark.PARTITION and pieces):
                break
        if not self.train_mode and pieces:
            self._unanswered.append((pieces[0].stream, batch_size - missing))
        if pieces:
            self._hub.count_step()
        return self._assembled(pieces)

    def should_stop(self) -> bool:
        """Whether `next_batch` has seen the end of the feed, or the feed was terminated."""
        return self._hub.inbox.feed_ended

    def batch_results(self, results: Sequence[Any]) -> None:
        """Send the results of the oldest unanswered batch: exactly one per row, in order.

        Raises:
            ResultCountError: another number of results than rows.
            ConfigError: in train mode.
        """
        if self.train_mode:
            raise ConfigError("batch_results() is for inference", "Create the feed with train_mode=False.")
        if not self._unanswered:
            if len(results) == 0:
                return
            node = self._hub.node
            raise ResultCountError(f"{len(results)} results for 0 rows on node {node}: no batch is unanswered", None, node)
        stream, rows = self._unanswered.popleft()
        self._batches += 1
        if len(results) != rows:
            error = ResultCountError(
                f"{len(results)} results for {rows} rows: node {self._hub.node}, batch {self._batches}, "
                f"partition {stream.partition}",
                "Return one result per input row, in order.",
                self._hub.node,
                stream.partition,
            )
            self._hub.give_up(error)
            raise error
        if stream.send_results is not None and not stream.dead:
            try:
                stream.send_results(pack_list(results if hasattr(results, "dtype") else list(results)))
            except OSError:
                # The Spark task ended early (take(n), a cancelled job): nobody wants the results.
                return
        self._hub.inbox.answer(stream, rows)

    def terminate(self) -> None:
        """Take no more rows: feed tasks end normally, and the driver stops feeding when all nodes have done this."""
        self._hub.close()

    def as_dataset(
        self, batch_size: int, *, all_epochs: bool = False, drop_remainder: bool = False, allow_empty: bool = False
    ) -> Any:
        """A `tf.data.Dataset` of whole batches; see `tfos_core.feed.dataset`.

        Args:
            batch_size: rows per element; with a tf.distribute strategy the global batch.
            all_epochs: one iteration is the whole feed instead of one epoch of one train call.
            drop_remainder: drop the short batch at the end of an iteration; with `equal_steps` that is done in any case.
            allow_empty: with `equal_steps`, an epoch in which some node has not one whole batch has no steps, and is no error.
        """
        if not self.train_mode:
            raise ConfigError("as_dataset() is for training", "Use next_batch() and batch_results() for inference.")
        from tfos_core.feed.dataset import make_dataset

        # Programs ask for one in every epoch, and TensorFlow takes 20 ms to make one. What is made inside a graph belongs to that.
        known = (batch_size, all_epochs, drop_remainder, allow_empty)
        if known in self._datasets and _is_eager():
            return self._datasets[known]
        made = make_dataset(
            self._hub,
            batch_size,
            mapping=self._mapping,
            all_epochs=all_epochs,
            drop_remainder=drop_remainder,
            allow_empty=allow_empty,
        )
        if _is_eager():
            self._datasets[known] = made
        return made

    def _assembled(self, pieces: Sequence[Piece]) -> Any:
        if self._mapping is None:
            batch: list[Any] = []
            for piece in pieces:
                batch.extend(piece.block.rows(piece.start, piece.stop))
            return batch
        wanted = tuple(self._mapping)
        tensors: dict[str, list[Any]] = {tensor: [] for tensor in self._mapping.values()}
        for piece in pieces:
            try:
                columns = take_columns(piece.block, piece.start, piece.stop, wanted)
            except FeedError as exc:
                raise FeedError(exc.message, exc.hint, self._hub.node, piece.stream.partition) from exc
            for tensor, column in zip(self._mapping.values(), columns, strict=True):
                # Not `+=`, which NumPy takes for an addition when the column is an array.
                tensors[tensor].extend(column)
        return tensors


def _is_eager() -> bool:
    import tensorflow as tf

    return bool(tf.executing_eagerly())
