"""What bounds the feed as it is built: what rows cost that lie in memory, in one process, without Spark and without code of ours.

    python benchmarks/bounds.py [--rounds 5] [--batch ROWS]... [--shape NAME]...

For each shape of `feed.py`, in batches of the size that it uses:

* `socket`: the bytes of the rows go from one process to another through a Unix socket, in blocks of 1 MiB, as they go from a feed
  task to its node;
* `shared memory`: the same, but the blocks are copied into memory that both processes share, and out of it. It saves little,
  because it is the copies that take the time, so the feed does without;
* `Python values`: the tuples, lists, bytes or arrays that `next_batch` gives, made by NumPy or pyarrow from memory;
* `unpickled`: the same rows of an RDD, out of pickled batches;
* `gathered`: the numbers of an RDD's rows, copied once from where they are in pickled batches into an array, as tensors need them;
* `tf.data`: `Dataset.from_generator` over stacks of 32 batches, cut apart by `flat_map`, iterated in Python: the fewest calls into
  Python that batches which arrive one after the other can make;
* `tf.data in tf.function`: the same, iterated inside a compiled function;
* `slices`: `Dataset.from_tensor_slices` over all batches, iterated in Python: nothing that gives Python a batch can be faster, but
  the rows have to be there before.

Each is told as a rate and as CPU seconds for a million rows, of all threads and of both processes of `socket` and `shared memory`.
`summary.py` adds them to what Spark alone takes for the same rows: with all cores busy, no feed through a socket can have a better
ratio than that gives.
"""

from __future__ import annotations

import argparse
import functools
import mmap
import os
import pickle
import socket
import struct
import time
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import node_functions
import numpy as np
from report import Measurement, measure, print_table, write_results
from shapes import SHAPES, Shape

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
_STACK = 32
_BLOCK = 1 << 20
_SLOTS = 4
_HEAD = struct.Struct("=qq")
CPU = "CPU s/M rows"


def main() -> None:
    """Measure, print a table for each shape, and write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="measured rounds of every way (default 5)")
    parser.add_argument("--batch", type=int, action="append", help="rows of a batch; repeatable (default: as feed.py)")
    parser.add_argument("--shape", action="append", choices=[shape.name for shape in SHAPES], help="only this one; repeatable")
    options = parser.parse_args()
    measurements: list[Measurement] = []
    # Forked while this process is small: of a large one a fork costs more than what is measured.
    receiver = _Receiver()
    for shape in SHAPES:
        if not options.shape or shape.name in options.shape:
            for batch in options.batch or (shape.batch,):
                measurements += _measure(shape, batch, options.rounds, receiver)
    settings = {name: value for name, value in vars(options).items() if value is not None}
    print(f"\nwritten: {write_results('bounds', measurements, master='none', **settings)}")


def _ten(random: Any, rows: int) -> list[Any]:
    return [random.random(rows, dtype=np.float32) for _ in range(10)]


def _images(random: Any, rows: int) -> list[Any]:
    return [random.random((rows, 784), dtype=np.float32)]


def _labelled(random: Any, rows: int) -> list[Any]:
    return [*_images(random, rows), np.arange(rows)]


def _bytes(random: Any, rows: int, size: int = 3072) -> list[Any]:
    found = np.empty(rows, dtype=object)
    # Letters: as text they are a byte each.
    found[:] = [letters.tobytes() for letters in random.integers(97, 123, (rows, size), dtype="uint8")]
    return [found]


#: How many rows, and their columns.
_COLUMNS: dict[str, tuple[int, Callable[[Any, int], list[Any]]]] = {
    "tuple10": (640_000, _ten),
    "list784": (64_000, _labelled),
    "numpy784": (64_000, _images),
    "frame10": (640_000, _ten),
    "frame784": (64_000, _labelled),
    "binary": (64_000, _bytes),
    "strings": (640_000, lambda random, rows: _bytes(random, rows, 100)),
}


def _measure(shape: Shape, batch: int, rounds: int, receiver: _Receiver) -> list[Measurement]:
    rows, make = _COLUMNS[shape.name]
    rows -= rows % (batch * _STACK)
    columns = make(np.random.default_rng(1), rows)
    batches = [column.reshape(-1, batch, *column.shape[1:]) for column in columns]
    size = sum(len(column[0]) * rows if column.dtype == object else column.nbytes for column in columns)
    generator, slices = _generator(batches), _slices(batches)
    ways: dict[str, Callable[[], Any]] = {
        "socket": functools.partial(receiver.move, size, shared=False),
        "shared memory": functools.partial(receiver.move, size, shared=True),
        "Python values": _values(shape, batches),
        "tf.data": lambda: _exhaust(generator),
        "tf.data in tf.function": _inside(generator),
        "slices": lambda: _exhaust(slices),
    }
    if not shape.is_dataframe:
        ways["unpickled"] = _unpickled(shape, batches)
    if shape.name in ("tuple10", "list784", "numpy784"):
        ways["gathered"] = _gathered(shape, batch, rows)
    rates: dict[str, list[float]] = {way: [] for way in ways}
    costs: dict[str, list[float]] = {way: [] for way in ways}
    for number in range(rounds + 1):
        for way, run in ways.items():
            started, before = time.perf_counter(), _cpu_s(receiver)
            run()
            if number:
                rates[way].append(rows / (time.perf_counter() - started))
                costs[way].append((_cpu_s(receiver) - before) / rows * 1e6)
    case = shape.shown if batch == shape.batch else f"{shape.shown}, batches of {batch}"
    found = [measure(case, way, values) for way, values in rates.items()]
    found += [measure(case, way, values, unit=CPU) for way, values in costs.items()]
    print_table(case, [(each, None) for each in found])
    return found


def _cpu_s(receiver: _Receiver) -> float:
    """CPU seconds of this process and of the receiver."""
    return time.process_time() + receiver.cpu_s()


class _Receiver:
    """A process that reads blocks, and forgets them. It ends with this one."""

    def __init__(self) -> None:
        self._block = memoryview(bytearray(_BLOCK))
        self._slots = memoryview(mmap.mmap(-1, _SLOTS * _BLOCK))
        self._ours, theirs = socket.socketpair()
        self._ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BLOCK)
        self._pid = os.fork()
        if not self._pid:
            self._ours.close()
            _receive(theirs, self._block, self._slots)
        theirs.close()

    def cpu_s(self) -> float:
        """CPU seconds that it has taken (MAKE_PROCESS_CPUCLOCK of Linux: the clock of another process)."""
        return time.clock_gettime((~self._pid << 3) | 2)

    def move(self, size: int, *, shared: bool) -> None:
        """Give it so many bytes, and wait until it has them."""
        used = 0
        for number, start in enumerate(range(0, size, _BLOCK)):
            part = self._block[: size - start]
            if shared:
                if number >= _SLOTS:
                    # Blocks are taken in their order.
                    self._ours.recv(1, socket.MSG_WAITALL)
                    used -= 1
                slot = number % _SLOTS * _BLOCK
                self._slots[slot : slot + len(part)] = part
                self._ours.sendall(_HEAD.pack(slot, len(part)))
                used += 1
            else:
                self._ours.sendall(_HEAD.pack(-1, len(part)))
                self._ours.sendall(part)
        self._ours.sendall(_HEAD.pack(-1, 0))
        self._ours.recv(used + 1, socket.MSG_WAITALL)


def _receive(source: socket.socket, block: memoryview, slots: memoryview) -> NoReturn:
    """Take blocks, and tell of each one that was in a slot, and of one of no bytes."""
    while head := source.recv(_HEAD.size, socket.MSG_WAITALL):
        slot, size = _HEAD.unpack(head)
        if slot >= 0:
            block[:size] = slots[slot : slot + size]
        elif size:
            source.recv_into(block[:size], 0, socket.MSG_WAITALL)
            continue
        source.sendall(b"x")
    os._exit(0)


def _values(shape: Shape, batches: list[Any]) -> Callable[[], None]:
    """Makes the rows of one batch after the other, and forgets them."""
    if shape.name == "strings":
        import pyarrow as pa

        texts = [pa.array([value.decode() for value in batch]) for batch in batches[0]]
        return lambda: _exhaust(batch.to_pylist() for batch in texts)
    if shape.name == "binary":
        import pyarrow as pa

        made = [pa.array(batch) for batch in batches[0]]
        return lambda: _exhaust(batch.to_pylist() for batch in made)
    if shape.name == "numpy784":
        return lambda: _exhaust(map(list, batches[0]))
    if shape.name == "frame784":
        return lambda: _exhaust(list(zip(images, labels.tolist(), strict=True)) for images, labels in zip(*batches, strict=True))
    return lambda: _exhaust(list(zip(*(part.tolist() for part in parts), strict=True)) for parts in zip(*batches, strict=True))


def _unpickled(shape: Shape, batches: list[Any]) -> Callable[[], None]:
    pickled = []
    for parts in zip(*batches, strict=True):
        if shape.name == "numpy784":
            rows: list[Any] = [image.copy() for image in parts[0]]
        elif shape.name == "strings":
            rows = [value.decode() for value in parts[0]]
        else:
            rows = list(zip(*(part.tolist() for part in parts), strict=True))
        pickled.append(pickle.dumps(rows, 5))
    return lambda: _exhaust(map(pickle.loads, pickled))


def _gathered(shape: Shape, batch: int, rows: int) -> Callable[[], None]:
    if shape.name == "numpy784":
        # An array is its bytes, and about a hundred more that say what it is.
        arrays = np.zeros((rows, 784 * 4 + 100), np.uint8)[:, 50:-50]
        return lambda: _exhaust(arrays[start : start + batch].copy() for start in range(0, rows, batch))
    # A float is an opcode and 8 bytes, the most significant one first.
    width = 784 if shape.name == "list784" else 10
    data = np.zeros((rows, width * 9 + 4), np.uint8)
    numbers: Any = np.ndarray((rows, width), ">f8", data, 1, (data.shape[1], 9))
    return lambda: _exhaust(numbers[start : start + batch].astype(np.float32) for start in range(0, rows, batch))


def _exhaust(batches: Any) -> None:
    for _ in batches:
        pass


def _slices(batches: list[Any]) -> Any:
    import tensorflow as tf

    return tf.data.Dataset.from_tensor_slices(tuple(batches))


def _generator(batches: list[Any]) -> Any:
    import tensorflow as tf

    def stacks() -> Iterator[Any]:
        for start in range(0, len(batches[0]), _STACK):
            yield tuple(column[start : start + _STACK] for column in batches)

    signature = tuple(
        tf.TensorSpec([None, None, *column.shape[2:]], tf.string if column.dtype == object else column.dtype) for column in batches
    )
    dataset = tf.data.Dataset.from_generator(stacks, output_signature=signature)
    options = tf.data.Options()
    # As in datasets of nodes: a thread that tunes takes time of its own.
    options.autotune.enabled = False
    return dataset.flat_map(lambda *stack: tf.data.Dataset.from_tensor_slices(stack)).with_options(options)


def _inside(dataset: Any) -> Callable[[], Any]:
    return functools.partial(node_functions.compiled_count(), dataset)


if __name__ == "__main__":
    main()
