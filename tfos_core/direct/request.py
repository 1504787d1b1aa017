"""A `tf.data.Dataset` of one node's share of files.

One iteration is one pass over the share. Batches are whole; the last one of an iteration may be short. Cardinality is unknown and
auto-sharding is off, so that tf.distribute pads a node that has run out, as with a feed (`tfos_core.feed.dataset`). Autotuning is
off, too: see `node_options`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from tfos_core.dataset_options import node_options
from tfos_core.direct.errors import DataError
from tfos_core.direct.mixing import mixed
from tfos_core.direct.parquet import ParquetFiles
from tfos_core.direct.records import RecordFiles
from tfos_core.direct.shares import Part, Shard, share_of, shuffled
from tfos_core.direct.tensors import Array, Element, arrays_of, choose_columns, describe
from tfos_core.errors import ConfigError
from tfos_core.tfrecords.folders import InputFile, list_files

__all__ = ("BlockSource", "DataRequest", "make_dataset", "plan_share")

_FORMATS = {"parquet": (".parquet", ".pq"), "tfrecord": (".tfrecord", ".tfrecords")}
_COMPRESSIONS = (".gz", ".zlib", ".snappy", ".zstd", ".lz4")
_SAMPLE_ROWS = 64
#: What is read, converted and handed to TensorFlow at once; batches are cut out of it there.
_BLOCK_BYTES = 4 << 20
_MOST_ROWS = 16384
#: Not a column's option: the columns of TFRecords in Spark's words.
_SCHEMA_OPTION = "schema"


class Files(Protocol):
    """Files of one format: pieces with lengths, cut into parts."""

    schema: Any

    @property
    def lengths(self) -> tuple[int, ...]: ...

    def path_of(self, part: Part) -> str: ...

    def read(self, part: Part, columns: Sequence[str], rows: int) -> Iterator[Any]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class DataRequest:
    """What a node wants to read.

    Attributes:
        path: a file, a folder or a pattern, with or without a scheme.
        format: `parquet` or `tfrecord`; None finds out from the names of the files.
        columns: which, in this order; None takes all.
        input_mapping: column -> tensor; makes every batch a dict.
        options: of TFRecords, as in `format("tfrecord")`, and `schema`.
        shard: which share.
        shuffle: rows that are mixed with each other; 0 keeps the order of the files.
        seed: of the order; the same on all nodes.
    """

    path: str
    format: str | None = None
    columns: Sequence[str] | None = None
    input_mapping: Mapping[str, str] | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    shard: Shard = field(default_factory=Shard)
    shuffle: int = 0
    seed: int = 0


def make_dataset(request: DataRequest, batch_size: int, *, drop_remainder: bool = False) -> Any:
    """A `tf.data.Dataset` of the share.

    Args:
        batch_size: rows of a batch; with a tf.distribute strategy the global batch, as everywhere in TensorFlow.
        drop_remainder: drop the short batch at the end of an iteration.

    Raises:
        ConfigError: an argument can not be, there is no data, or there are no such columns.
        DataError: a file can not be read, or holds what a tensor can not.
        StorageError: the file system does not answer.
    """
    if batch_size < 1:
        raise ConfigError(f"batch_size is {batch_size}", "Use 1 or more.")
    source = plan_share(request)
    import tensorflow as tf

    signature = [
        tf.TensorSpec(shape=[None, *tensor.shape], dtype=tf.as_dtype(tensor.dtype), name=None) for tensor in source.element.tensors
    ]
    dataset = tf.data.Dataset.from_generator(source, output_signature=source.element.structured(signature))
    # TensorFlow cuts batches out of blocks without Python: two to three times as fast as a batch at a time from Python.
    dataset = dataset.rebatch(batch_size, drop_remainder=drop_remainder).prefetch(2)
    return dataset.with_options(node_options())


def plan_share(request: DataRequest) -> BlockSource:
    """What this node reads, without TensorFlow.

    Raises:
        ConfigError, DataError, StorageError: as `make_dataset`.
    """
    if request.shuffle < 0:
        raise ConfigError(f"shuffle is {request.shuffle}", "Give the number of rows to mix, or 0.")
    found = [file for file in list_files([request.path]) if file.size]
    if not found:
        raise DataError(f"there are no files with data at {request.path}", "Was it written whole? Hidden files do not count.")
    files = _files(request, found)
    columns = choose_columns(files.schema.names, request.columns, request.input_mapping)
    sample, path = _sample(files, columns, request.path)
    order = shuffled(len(files.lengths), request.seed) if request.shuffle else None
    return BlockSource(
        files=files,
        parts=share_of(files.lengths, request.shard, order),
        columns=columns,
        element=describe(sample, request.input_mapping, path),
        rows=max(1, min(_MOST_ROWS, _BLOCK_BYTES * sample.num_rows // max(1, sample.nbytes))),
        shuffle=request.shuffle,
        seed=request.seed,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockSource:
    """Calling it starts a pass over the share: arrays of up to `rows` rows, in the form of `element`."""

    files: Files
    parts: tuple[Part, ...]
    columns: tuple[str, ...]
    element: Element
    rows: int
    shuffle: int
    seed: int
    _passes: Iterator[int] = field(default_factory=itertools.count, repr=False)

    def __call__(self) -> Iterator[Any]:
        """One pass; with `shuffle`, each has an order of its own."""
        number = next(self._passes)
        if not self.shuffle:
            for block in self._blocks(self.parts):
                yield self.element.structured(block)
            return
        # Which rows a node has stays, their order changes: so a node that begins a pass too many harms no other.
        order = shuffled(len(self.parts), self.seed, number)
        for block in mixed(self._blocks([self.parts[place] for place in order]), self.shuffle, (self.seed, number)):
            for start in range(0, len(block[0]), self.rows):
                yield self.element.structured([column[start : start + self.rows] for column in block])

    def _blocks(self, parts: Sequence[Part]) -> Iterator[list[Array]]:
        for part in parts:
            path = self.files.path_of(part)
            for batch in self.files.read(part, self.columns, self.rows):
                if batch.num_rows:
                    yield arrays_of(batch, path, self.element)


def _files(request: DataRequest, found: Sequence[InputFile]) -> Files:
    name = request.format or _format_of(found)
    options = {key: value for key, value in request.options.items() if key != _SCHEMA_OPTION}
    if name == "parquet":
        return ParquetFiles(found)
    if name == "tfrecord":
        return RecordFiles([request.path], found, options, request.options.get(_SCHEMA_OPTION))
    raise ConfigError(
        f"nodes read parquet and tfrecord files, and {request.path} is {name or 'of no format that its names tell'}",
        "Name the format, convert the files, or use input_mode spark, which reads csv, json, orc and text too.",
    )


def _format_of(found: Sequence[InputFile]) -> str | None:
    names = set()
    for file in found:
        name = file.path.lower()
        for ending in _COMPRESSIONS:
            name = name.removesuffix(ending)
        names.add(next((known for known, endings in _FORMATS.items() if name.endswith(endings)), None))
    return names.pop() if len(names) == 1 else None


def _sample(files: Files, columns: Sequence[str], path: str) -> tuple[Any, str]:
    """The first rows of all, which say what shape the tensors have: the same on every node, also on one that gets none."""
    for piece, length in enumerate(files.lengths):
        part = Part(piece=piece, begin=0, end=length, length=length)
        for batch in files.read(part, columns, _SAMPLE_ROWS) if length else ():
            if batch.num_rows:
                return batch, files.path_of(part)
    raise DataError(f"there is no row in the files at {path}", "Is the data empty?")
