"""The feed that somebody would write for one program: rows go through a Unix socket to a process that makes values of them.

    python by_hand.py SHAPE WAY BATCH SOCKET

It gives no guarantee and knows its rows: nobody acknowledges a row, counts it, or looks at it, and nothing but the socket bounds
memory. So it shows what a feed can come to beside Spark's own work, where caches are cold and cores busy.
As a program it is the receiver: it takes partitions one after the other until a connection says that the round is over.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import socket
import struct
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from session import own_workers
from shapes import SHAPES, Shape
from usage import GROUP

__all__ = ("ByHand",)

_SIZE = struct.Struct("=q")
_STACK = 32
#: Bytes of pickled rows that make a block, as those of Arrow batches do.
_BLOCK = 1 << 20
_PARTITION_OVER, _ROUND_OVER = -1, -2
#: What nodes of tfos set with mallopt(3): memory that was freed is kept for the next rows.
_ALLOCATOR = {"MALLOC_TRIM_THRESHOLD_": "67108864", "MALLOC_MMAP_THRESHOLD_": "33554432", "MALLOC_TOP_PAD_": "67108864"}


@dataclass(slots=True, kw_only=True)
class ByHand:
    """Receivers that run, each with its socket; tasks of a round give partition n to the n-th of them."""

    shape: Shape
    sockets: tuple[str, ...]
    group: str

    @classmethod
    @contextlib.contextmanager
    def started(cls, shape: Shape, way: str, *, batch: int, folder: Path, count: int, group: str) -> Iterator[ByHand]:
        """With `count` receivers that take rows in this way; they and the tasks are processes of this group."""
        paths = tuple(str(folder / f"{shape.name}-{number}.sock") for number in range(count))
        commands = [[sys.executable, __file__, shape.name, way, str(batch), path] for path in paths]
        processes = [
            subprocess.Popen(command, stdout=subprocess.PIPE, env=os.environ | _ALLOCATOR | {GROUP: group}) for command in commands
        ]
        try:
            for process in processes:
                assert process.stdout is not None
                assert process.stdout.readline() == b"ready\n"
            yield cls(shape=shape, sockets=paths, group=group)
        finally:
            for process in processes:
                process.kill()
                process.wait()
            for path in paths:
                Path(path).unlink(missing_ok=True)

    def run(self, context: Any, data: Any) -> None:
        """One round: every row of the data to a receiver, and its batches to nobody."""
        from pyspark import RDD
        from pyspark.serializers import NoOpSerializer

        with own_workers(context, self.group):
            if self.shape.is_dataframe:
                data.mapInArrow(_SendArrow(self.sockets), "partition long").collect()
            else:
                # The pickled batches as they are.
                RDD(data._jrdd, context, NoOpSerializer()).foreachPartition(_SendPickled(self.sockets))
        for path in self.sockets:
            with _connected(path) as connection:
                _end(connection, _ROUND_OVER)


@dataclass(frozen=True, slots=True)
class _SendArrow:
    sockets: tuple[str, ...]

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        with _own_connection(self.sockets) as connection:
            for batch in batches:
                _send(connection, pickle.dumps(batch.schema))
                _send(connection, batch.serialize())
        yield pa.RecordBatch.from_pydict({"partition": pa.array([0], pa.int64())})


@dataclass(frozen=True, slots=True)
class _SendPickled:
    sockets: tuple[str, ...]

    def __call__(self, batches: Iterable[bytes]) -> None:
        with _own_connection(self.sockets) as connection:
            for batch in batches:
                _send(connection, batch)


def _connected(path: str) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BLOCK)
    connection.connect(path)
    return connection


@contextlib.contextmanager
def _own_connection(sockets: tuple[str, ...]) -> Iterator[socket.socket]:
    from pyspark import TaskContext

    task = TaskContext.get()
    assert task is not None
    with _connected(sockets[task.partitionId() % len(sockets)]) as connection:
        yield connection
        _end(connection, _PARTITION_OVER)


def _end(connection: socket.socket, word: int) -> None:
    """Say so, and wait until all that was sent before is values."""
    connection.sendall(_SIZE.pack(word))
    if not connection.recv(1):
        raise RuntimeError("the receiver is gone")


def _send(connection: socket.socket, data: Any) -> None:
    size = data.size if hasattr(data, "size") else len(data)
    connection.sendall(_SIZE.pack(size))
    connection.sendall(data)


def _blocks(listener: socket.socket) -> Iterator[memoryview]:
    """The blocks of a round, partition after partition."""
    while True:
        connection, _ = listener.accept()
        with connection:
            while (size := _SIZE.unpack(connection.recv(_SIZE.size, socket.MSG_WAITALL))[0]) >= 0:
                block = memoryview(bytearray(size))
                connection.recv_into(block, size, socket.MSG_WAITALL)
                yield block
            connection.sendall(b"x")
            if size == _ROUND_OVER:
                return


def _arrow_batches(listener: socket.socket) -> Iterator[Any]:
    import pyarrow as pa

    blocks = _blocks(listener)
    for schema in blocks:
        yield pa.ipc.read_record_batch(next(blocks), pickle.loads(schema))


def _pickled_rows(listener: socket.socket, least: int) -> Iterator[list[Any]]:
    """Rows, at least so many at once but at the end."""
    rows: list[Any] = []
    for block in _blocks(listener):
        found = pickle.loads(block)
        rows = found if not rows else rows + found
        if len(rows) >= least:
            yield rows
            rows = []
    if rows:
        yield rows


def _row_lists(shape: Shape, batch: int, listener: socket.socket) -> Iterator[Any]:
    """What `next_batch` gives."""
    if not shape.is_dataframe:
        for rows in _pickled_rows(listener, batch):
            yield from (rows[start : start + batch] for start in range(0, len(rows), batch))
        return
    for table in _arrow_batches(listener):
        for start in range(0, table.num_rows, batch):
            part = table.slice(start, batch)
            columns = part.columns
            if shape.name == "frame784":
                yield list(zip(columns[0].flatten().to_numpy().reshape(-1, 784), columns[1].to_numpy().tolist(), strict=True))
            elif shape.name == "binary":
                yield list(zip(columns[0].to_pylist(), strict=True))
            else:
                yield list(zip(*(column.to_numpy().tolist() for column in columns), strict=True))


def _columns(shape: Shape, batch: int, listener: socket.socket) -> Iterator[list[Any]]:
    """Columns of many rows."""
    import numpy as np

    if not shape.is_dataframe:
        for rows in _pickled_rows(listener, batch * _STACK):
            if shape.name == "list784":
                yield [np.array([row[0] for row in rows], np.float32), np.array([row[1] for row in rows])]
            elif shape.name == "strings":
                yield [np.array(rows, object)]
            else:
                yield [np.array(rows, np.float32)]
        return
    for table in _arrow_batches(listener):
        columns = table.columns
        if shape.name == "frame784":
            yield [columns[0].flatten().to_numpy().reshape(-1, 784), columns[1].to_numpy()]
        elif shape.name == "binary":
            yield [columns[0].to_numpy(zero_copy_only=False)]
        else:
            yield [column.to_numpy() for column in columns]


def _stacks(shape: Shape, batch: int, listener: socket.socket) -> Iterator[Any]:
    """Columns as batches on top of each other; a rest of less than a batch on its own."""
    for columns in _columns(shape, batch, listener):
        rows = len(columns[0])
        whole = rows - rows % batch
        for start in range(0, whole, batch * _STACK):
            stop = min(start + batch * _STACK, whole)
            yield tuple(column[start:stop].reshape(-1, batch, *column.shape[1:]) for column in columns)
        if whole < rows:
            yield tuple(column[None, whole:] for column in columns)


def _dataset(shape: Shape, batch: int, listener: socket.socket) -> Any:
    import tensorflow as tf

    kinds = {
        "tuple10": [((10,), tf.float32)],
        "list784": [((784,), tf.float32), ((), tf.int64)],
        "numpy784": [((784,), tf.float32)],
        "frame10": [((), tf.float32)] * 10,
        "frame784": [((784,), tf.float32), ((), tf.int64)],
        "binary": [((), tf.string)],
        "strings": [((), tf.string)],
    }
    signature = tuple(tf.TensorSpec([None, None, *form], kind) for form, kind in kinds[shape.name])
    dataset = tf.data.Dataset.from_generator(lambda: _stacks(shape, batch, listener), output_signature=signature)
    options = tf.data.Options()
    options.autotune.enabled = False
    return dataset.flat_map(lambda *stack: tf.data.Dataset.from_tensor_slices(stack)).prefetch(2).with_options(options)


def _rounds(shape: Shape, way: str, batch: int, listener: socket.socket) -> Callable[[], None]:
    if way == "next_batch":
        return lambda: _exhaust(_row_lists(shape, batch, listener))
    dataset = _dataset(shape, batch, listener)
    if way == "as_dataset":
        return lambda: _exhaust(dataset)
    import tensorflow as tf

    @tf.function  # type: ignore[untyped-decorator]
    def count() -> Any:
        batches = tf.constant(0, tf.int64)
        for _ in dataset:
            batches += 1
        return batches

    return count  # type: ignore[no-any-return]


def _exhaust(batches: Any) -> None:
    for _ in batches:
        pass


def _receive(name: str, way: str, batch: int, path: str) -> None:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen(16)
    shape = next(shape for shape in SHAPES if shape.name == name)
    run = _rounds(shape, way, batch, listener)
    print("ready", flush=True)
    while True:
        run()


if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
    _receive(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4])
