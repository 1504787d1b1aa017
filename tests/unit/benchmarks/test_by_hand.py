"""The feed by hand loses no row, so that comparing with it is fair."""

from __future__ import annotations

import pickle
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import by_hand
import numpy as np
import pyarrow as pa
import pytest
from shapes import SHAPES, Rows, Shape

#: No multiple of the batch: the rest of a partition counts too.
ROWS, BATCH, PARTITIONS = 250, 100, 2


@pytest.fixture
def listener(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(tmp_path / "receiver.sock"))
        bound.listen(PARTITIONS + 1)
        yield bound


def rows_of(shape: Shape) -> list[Any]:
    return list(Rows(shape=shape.name, per_partition=ROWS)(0))


def blocks_of(shape: Shape) -> list[Any]:
    """What a task of the feed by hand sends for one partition."""
    rows = rows_of(shape)
    if not shape.is_dataframe:
        return [pickle.dumps(rows[:32], 5), pickle.dumps(rows[32:], 5)]
    kinds = {"image": pa.list_(pa.float32()), "label": pa.int64(), "data": pa.binary()}
    names = [column.split()[0] for column in shape.schema.split(", ")]
    columns = [pa.array([row[place] for row in rows], kinds.get(name, pa.float32())) for place, name in enumerate(names)]
    batch = pa.record_batch(columns, names)
    return [pickle.dumps(batch.schema), batch.serialize()]


def send_all(shape: Shape, path: str, answers: list[bytes]) -> None:
    """Every partition, and the end of the round."""
    for number in range(PARTITIONS + 1):
        with by_hand._connected(path) as connection:
            for block in blocks_of(shape) if number < PARTITIONS else ():
                by_hand._send(connection, block)
            by_hand._end(connection, by_hand._PARTITION_OVER if number < PARTITIONS else by_hand._ROUND_OVER)
            answers.append(b"x")


def taken(shape: Shape, way: Any, listener: socket.socket) -> list[Any]:
    answers: list[bytes] = []
    sender = threading.Thread(target=send_all, args=(shape, listener.getsockname(), answers))
    sender.start()
    found = list(way(shape, BATCH, listener))
    sender.join(10)
    assert len(answers) == PARTITIONS + 1
    return found


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_every_row_becomes_values(shape: Shape, listener: socket.socket) -> None:
    lists = taken(shape, by_hand._row_lists, listener)
    assert all(1 <= len(rows) <= BATCH for rows in lists)
    found = [row for rows in lists for row in rows]
    assert len(found) == PARTITIONS * ROWS
    assert same(found[-1], rows_of(shape)[-1])


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_every_row_is_in_a_batch_for_tensorflow(shape: Shape, listener: socket.socket) -> None:
    stacks = taken(shape, by_hand._stacks, listener)
    assert sum(stack[0].shape[0] * stack[0].shape[1] for stack in stacks) == PARTITIONS * ROWS
    assert all(len({column.shape[:2] for column in stack}) == 1 for stack in stacks)
    assert all(stack[0].shape[1] == BATCH or stack[0].shape[0] == 1 for stack in stacks)


def same(one: Any, other: Any) -> bool:
    if isinstance(one, tuple):
        return all(map(same, one, other))
    if isinstance(one, str | bytes):
        return bool(one == (bytes(other) if isinstance(other, bytearray) else other))
    return np.array_equal(one, np.asarray(other, np.float32 if np.asarray(other).dtype.kind == "f" else None))
