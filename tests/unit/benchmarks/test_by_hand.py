"""The feed by hand loses no row and mixes none, so that comparing with it is fair."""

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

#: No multiple of the batch: the rest of a partition counts too. More than one stack of batches.
ROWS, BATCH, PARTITIONS = 250, 10, 2
DEADLINE_S = 20.0


@pytest.fixture
def receiver(tmp_path: Path) -> Iterator[by_hand._Receiver]:
    with socket.socket(socket.AF_UNIX) as bound:
        bound.settimeout(DEADLINE_S)
        bound.bind(str(tmp_path / "receiver.sock"))
        bound.listen(PARTITIONS + 1)
        yield by_hand._Receiver(bound)


def rows_of(shape: Shape, partition: int) -> list[Any]:
    return list(Rows(shape=shape.name, per_partition=ROWS)(partition))


def blocks_of(shape: Shape, partition: int) -> list[Any]:
    """What a task of the feed by hand sends."""
    rows = rows_of(shape, partition)
    if not shape.is_dataframe:
        return [pickle.dumps(rows[:32], 5), pickle.dumps(rows[32:], 5)]
    kinds = {"image": pa.list_(pa.float32()), "label": pa.int64(), "data": pa.binary()}
    names = [column.split()[0] for column in shape.schema.split(", ")]
    columns = [pa.array([row[place] for row in rows], kinds.get(name, pa.float32())) for place, name in enumerate(names)]
    batch = pa.record_batch(columns, names)
    return [pickle.dumps(batch.schema), batch.slice(0, 120).serialize(), batch.slice(120).serialize()]


def send_all(shape: Shape, path: str, answered: list[int]) -> None:
    """Every partition, and the end of the round."""
    for number in range(PARTITIONS + 1):
        with by_hand._connected(path) as connection:
            for block in blocks_of(shape, number) if number < PARTITIONS else ():
                by_hand._send(connection, block)
            by_hand._end(connection, by_hand._PARTITION_OVER if number < PARTITIONS else by_hand._ROUND_OVER)
            answered.append(number)


def taken(shape: Shape, way: Any, receiver: by_hand._Receiver) -> list[Any]:
    answered: list[int] = []
    sender = threading.Thread(target=send_all, args=(shape, receiver.listener.getsockname(), answered), daemon=True)
    sender.start()
    found = list(way(shape, BATCH, receiver))
    assert answered == list(range(PARTITIONS)), "the round is answered when its rows are values"
    receiver.answer()
    sender.join(DEADLINE_S)
    assert answered == list(range(PARTITIONS + 1))
    return found


def expected(shape: Shape) -> list[Any]:
    return [row for partition in range(PARTITIONS) for row in rows_of(shape, partition)]


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_every_row_becomes_values(shape: Shape, receiver: by_hand._Receiver) -> None:
    lists = taken(shape, by_hand._row_lists, receiver)
    assert all(1 <= len(rows) <= BATCH for rows in lists)
    found = [row for rows in lists for row in rows]
    assert all(same(row, other) for row, other in zip(found, expected(shape), strict=True))


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_every_row_is_in_a_batch_for_tensorflow(shape: Shape, receiver: by_hand._Receiver) -> None:
    stacks = taken(shape, by_hand._stacks, receiver)
    assert all(stack[0].shape[1] == BATCH or stack[0].shape[0] == 1 for stack in stacks)
    columns = [np.concatenate([column.reshape(-1, *column.shape[2:]) for column in parts]) for parts in zip(*stacks, strict=True)]
    rows = [row if len(columns) > 1 else row[0] for row in zip(*columns, strict=True)]
    wanted = [row[0] if shape.name == "binary" else row for row in expected(shape)]
    assert len(rows) == PARTITIONS * ROWS
    assert all(same(row, other) for row, other in zip(rows, wanted, strict=True))


def same(one: Any, other: Any) -> bool:
    if isinstance(one, str | bytes):
        return bool(one == (bytes(other) if isinstance(other, bytearray) else other))
    if isinstance(one, tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(np.array_equal(np.asarray(one, np.float32), np.asarray(other, np.float32)))
