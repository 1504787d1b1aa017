"""The feed that somebody would write for one program: rows go through a Unix socket to a process that makes values of them.

    python by_hand.py SHAPE WAY BATCH SOCKET

It knows its rows and gives no guarantee: nobody counts a row or looks at it, a partition is acknowledged as a whole, nothing but
the socket bounds memory, and batches are short where blocks end. One thread does it all, with `pickle`, pyarrow and NumPy. So it
shows what such a feed comes to beside Spark's own work, where caches are cold and cores busy.
As a program it is the receiver: it takes partitions one after the other until a connection says that the round is over.
"""

from __future__ import annotations

import contextlib
import functools
import os
import pickle
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import node_functions
from session import own_workers
from shapes import SHAPES, Shape
from usage import GROUP

__all__ = ("ByHand",)

_SIZE = struct.Struct("=q")
#: Batches that are given to tf.data at once, and that a task sends at once of a DataFrame.
_STACK = 32
_BUFFER_BYTES = 1 << 20
_PARTITION_OVER, _ROUND_OVER = -1, -2
_PICKLE = 0x80
#: Until somebody gives up who waits for the other end.
_TIMEOUT_S = 300.0
#: What feed tasks and nodes of tfos set with mallopt(3): memory that was freed is kept for the next rows.
_ALLOCATOR = {"MALLOC_TRIM_THRESHOLD_": "67108864", "MALLOC_MMAP_THRESHOLD_": "33554432", "MALLOC_TOP_PAD_": "67108864"}
#: As on a node whose executor has one core.
_THREADS = {"OMP_NUM_THREADS": "1", "TF_NUM_INTRAOP_THREADS": "1"}


@dataclass(slots=True, kw_only=True)
class ByHand:
    """Receivers that run, each with its socket; tasks give rows to the one of their executor."""

    shape: Shape
    sockets: tuple[str, ...]
    batch: int
    group: str

    @classmethod
    @contextlib.contextmanager
    def started(cls, shape: Shape, way: str, *, batch: int, folder: Path, count: int, group: str) -> Iterator[ByHand]:
        """With `count` receivers that take rows in this way; they and the tasks are processes of this group.

        Raises:
            RuntimeError: a receiver ended at once.
        """
        paths = tuple(str(folder / f"{shape.name}-{number}.sock") for number in range(count))
        environment = os.environ | _ALLOCATOR | _THREADS | {GROUP: group}
        with contextlib.ExitStack() as stack:
            outputs = []
            for path in paths:
                command = [sys.executable, __file__, shape.name, way, str(batch), path]
                # It ends when its standard input does, whatever becomes of this process.
                process = stack.enter_context(
                    subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)
                )
                stack.callback(process.kill)
                outputs.append(process.stdout)
            for output in outputs:
                assert output is not None
                if output.readline() != b"ready\n":
                    raise RuntimeError("a receiver of the feed by hand ended before it was ready")
            yield cls(shape=shape, sockets=paths, batch=batch, group=group)

    def run(self, context: Any, data: Any) -> None:
        """One round, until every row of the data has become values.

        Raises:
            RuntimeError: a receiver is gone.
        """
        from pyspark import RDD
        from pyspark.serializers import NoOpSerializer

        with own_workers(context, self.group, _ALLOCATOR):
            if self.shape.is_dataframe:
                data.mapInArrow(_SendArrow(self.sockets, self.batch * _STACK), "rows long").collect()
            else:
                # The pickled batches as they are.
                RDD(data._jrdd, context, NoOpSerializer()).foreachPartition(_SendPickled(self.sockets))
        for path in self.sockets:
            with _connected(path) as connection:
                _end(connection, _ROUND_OVER)


@dataclass(frozen=True, slots=True)
class _SendArrow:
    sockets: tuple[str, ...]
    rows: int

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        sent = 0
        with _own_connection(self.sockets) as connection:
            for batch in batches:
                if not sent:
                    _send(connection, pickle.dumps(batch.schema))
                for start in range(0, batch.num_rows, self.rows):
                    _send(connection, batch.slice(start, self.rows).serialize())
                sent += batch.num_rows
        yield pa.RecordBatch.from_pydict({"rows": pa.array([sent], pa.int64())})


@dataclass(frozen=True, slots=True)
class _SendPickled:
    sockets: tuple[str, ...]

    def __call__(self, batches: Iterable[bytes]) -> None:
        with _own_connection(self.sockets) as connection:
            for batch in batches:
                _send(connection, batch)


def _connected(path: str) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER_BYTES)
    connection.connect(path)
    return connection


@contextlib.contextmanager
def _own_connection(sockets: tuple[str, ...]) -> Iterator[socket.socket]:
    # A Python worker stands in the folder of its executor, which has the executor's number.
    with _connected(sockets[int(Path.cwd().name) % len(sockets)]) as connection:
        yield connection
        _end(connection, _PARTITION_OVER)


def _end(connection: socket.socket, word: int) -> None:
    """Say that a partition is over, and wait until its blocks were taken; or the round, and wait until all rows are values."""
    connection.settimeout(_TIMEOUT_S)
    connection.sendall(_SIZE.pack(word))
    if not connection.recv(1):
        raise RuntimeError("a receiver of the feed by hand is gone")


def _send(connection: socket.socket, data: Any) -> None:
    size = data.size if hasattr(data, "size") else len(data)
    connection.sendall(_SIZE.pack(size))
    connection.sendall(data)


@dataclass(slots=True)
class _Receiver:
    """Takes blocks from whoever connects; `over` is who said that the round is over, and waits."""

    listener: socket.socket
    over: socket.socket | None = None

    def blocks(self) -> Iterator[Any]:
        """The blocks of a round, partition after partition."""
        import numpy as np

        while True:
            connection, _ = self.listener.accept()
            with contextlib.ExitStack() as stack:
                stack.enter_context(connection)
                while (size := _SIZE.unpack(connection.recv(_SIZE.size, socket.MSG_WAITALL))[0]) >= 0:
                    block = np.empty(size, np.uint8)
                    if connection.recv_into(block, size, socket.MSG_WAITALL) < size:
                        raise RuntimeError("a task of the feed by hand broke off")
                    yield block
                if size == _ROUND_OVER:
                    stack.pop_all()
                    self.over = connection
                    return
                connection.sendall(b"x")

    def answer(self) -> None:
        """All rows of the round are values."""
        if self.over is not None:
            with self.over:
                self.over.sendall(b"x")
            self.over = None


def _arrow_batches(receiver: _Receiver) -> Iterator[Any]:
    import pyarrow as pa

    schema = None
    for block in receiver.blocks():
        # A pickle begins with its protocol, a message of Arrow with FF FF FF FF.
        if block[0] == _PICKLE:
            schema = pickle.loads(block)
        else:
            yield pa.ipc.read_record_batch(pa.py_buffer(block), schema)


def _pickled_rows(receiver: _Receiver, least: int) -> Iterator[list[Any]]:
    """Rows, at least so many at once but at the end."""
    rows: list[Any] = []
    for block in receiver.blocks():
        rows.extend(pickle.loads(block))
        if len(rows) >= least:
            yield rows
            rows = []
    if rows:
        yield rows


def _row_lists(shape: Shape, batch: int, receiver: _Receiver) -> Iterator[Any]:
    """What `next_batch` gives."""
    if not shape.is_dataframe:
        for rows in _pickled_rows(receiver, batch):
            yield from (rows[start : start + batch] for start in range(0, len(rows), batch))
        return
    for table in _arrow_batches(receiver):
        for start in range(0, table.num_rows, batch):
            part = table.slice(start, batch)
            columns = part.columns
            if shape.name == "frame784":
                yield list(zip(columns[0].flatten().to_numpy().reshape(-1, 784), columns[1].to_numpy().tolist(), strict=True))
            elif shape.name == "binary":
                yield list(zip(columns[0].to_pylist(), strict=True))
            else:
                yield list(zip(*(column.to_numpy().tolist() for column in columns), strict=True))


def _columns(shape: Shape, batch: int, receiver: _Receiver) -> Iterator[list[Any]]:
    """Columns of many rows."""
    import numpy as np

    if not shape.is_dataframe:
        for rows in _pickled_rows(receiver, batch * _STACK):
            if shape.name == "list784":
                yield [np.array([row[0] for row in rows], np.float32), np.array([row[1] for row in rows])]
            elif shape.name == "strings":
                yield [np.array(rows, object)]
            else:
                yield [np.array(rows, np.float32)]
        return
    for table in _arrow_batches(receiver):
        columns = table.columns
        if shape.name == "frame784":
            yield [columns[0].flatten().to_numpy().reshape(-1, 784), columns[1].to_numpy()]
        elif shape.name == "binary":
            yield [columns[0].to_numpy(zero_copy_only=False)]
        else:
            yield [column.to_numpy() for column in columns]


def _stacks(shape: Shape, batch: int, receiver: _Receiver) -> Iterator[Any]:
    """Columns as batches on top of each other; a rest of less than a batch on its own."""
    for columns in _columns(shape, batch, receiver):
        rows = len(columns[0])
        whole = rows - rows % batch
        for start in range(0, whole, batch * _STACK):
            stop = min(start + batch * _STACK, whole)
            yield tuple(column[start:stop].reshape(-1, batch, *column.shape[1:]) for column in columns)
        if whole < rows:
            yield tuple(column[None, whole:] for column in columns)


def _dataset(shape: Shape, batch: int, receiver: _Receiver) -> Any:
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
    dataset = tf.data.Dataset.from_generator(lambda: _stacks(shape, batch, receiver), output_signature=signature)
    options = tf.data.Options()
    options.autotune.enabled = False
    return dataset.prefetch(1).flat_map(lambda *stack: tf.data.Dataset.from_tensor_slices(stack)).with_options(options)


def _rounds(shape: Shape, way: str, batch: int, receiver: _Receiver) -> Callable[[], None]:
    if way == "next_batch":
        return lambda: _exhaust(_row_lists(shape, batch, receiver))
    dataset = _dataset(shape, batch, receiver)
    if way == "as_dataset":
        return lambda: _exhaust(dataset)
    return functools.partial(node_functions.compiled_count(), dataset)


def _exhaust(batches: Any) -> None:
    for _ in batches:
        pass


def _receive(name: str, way: str, batch: int, path: str) -> None:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen(16)
    shape = next(shape for shape in SHAPES if shape.name == name)
    receiver = _Receiver(listener)
    run = _rounds(shape, way, batch, receiver)
    threading.Thread(target=_end_with_input, daemon=True).start()
    print("ready", flush=True)
    while True:
        run()
        receiver.answer()


def _end_with_input() -> None:
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
    _receive(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4])
