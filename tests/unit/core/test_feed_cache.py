"""What a node keeps: the same rows in every epoch, in memory and on disk, and nothing that stays."""

from __future__ import annotations

import os
import pickle
import stat
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tfos_core.errors import ConfigError, FeedError
from tfos_core.feed import cache as module
from tfos_core.feed.blocks import decode_schema
from tfos_core.feed.cache import BlockCache, local_folder
from tfos_core.feed.keeping import NodeCache
from tfos_core.feed.numbers import NumbersBlock
from tfos_core.feed.packing import Packed, pack_arrow, pack_list
from tfos_core.feed.wire import Kind

NONE = {"rows": 0, "problem": None, "memory_bytes": 0, "disk_bytes": 0}


def payload_of(packed: Packed) -> Any:
    return np.frombuffer(bytearray(b"".join(bytes(memoryview(buffer).cast("B")) for buffer in packed.buffers)), np.uint8)


def raw(rows: list[Any]) -> Any:
    data = pickle.dumps(rows, 5)
    return np.frombuffer(bytearray(struct.pack("!I", len(data)) + data), np.uint8)


def keep(cache: BlockCache, kind: Kind, payload: Any, schema: Any = None) -> Any:
    """What the inbox does with a whole block; the block of the first epoch."""
    kept, block = cache.opened(kind, payload, schema)
    if kept is not None:
        cache.add(kept, 0, len(block))
    return block


def replayed(cache: BlockCache, shuffled: str | None = None) -> list[list[Any]]:
    found = []
    for kept in cache.order(0, shuffled):
        block = cache.open(kept)
        assert block is not None
        found.append(block.rows(kept.start, kept.stop))
    return found


@pytest.fixture(params=[NodeCache(), NodeCache(memory_bytes=0)], ids=["memory", "disk"])
def cache(request: pytest.FixtureRequest, tmp_path: Path) -> BlockCache:
    made = BlockCache(tmp_path)
    made.begin(0, request.param)
    return made


def rows_of_every_kind() -> list[tuple[Kind, Any, Any]]:
    batch = pa.RecordBatch.from_pydict({"x": [[1.0, 2.0], [3.0, 4.0]], "y": ["a", None]})
    schema, body = (payload_of(packed) for packed in pack_arrow([batch], 1 << 20))
    arrays = pack_list([(np.arange(3.0), i) for i in range(3)])
    ragged = pack_list([[np.arange(2.0)], [np.arange(3.0)]])
    assert (arrays.kind, ragged.kind) == (Kind.COLUMNS, Kind.PICKLE)
    return [
        (Kind.RAW_PICKLE, raw([([0.1, 0.2], 3), ([0.5, 0.25], 4)]), None),
        (Kind.RAW_PICKLE, raw([{"a": 1}, {"a": None}]), None),
        (Kind.COLUMNS, payload_of(arrays), None),
        (Kind.PICKLE, payload_of(ragged), None),
        (Kind.ARROW_BATCH, body, decode_schema(schema)),
    ]


def test_every_kind_of_block_comes_again_as_it_was(cache: BlockCache) -> None:
    first = [keep(cache, *entry).rows(0, 10) for entry in rows_of_every_kind()]
    for _ in range(3):
        assert repr(replayed(cache)) == repr(first)
    assert cache.status(0)["rows"] == sum(map(len, first))


def test_what_a_program_does_to_its_rows_is_not_seen_in_the_next_epoch(cache: BlockCache) -> None:
    first = [keep(cache, *entry) for entry in rows_of_every_kind()]
    before = repr(replayed(cache))
    epochs = [[block.rows(0, 10) for block in first], replayed(cache)]
    for numbers, dicts, columns, ragged, arrow in epochs:
        numbers[0][0].append(7.0)
        dicts[0]["a"] = 9
        columns[0][0][:] = -1.0
        ragged[0][0][:] = -1.0
        with pytest.raises(ValueError, match="read-only"):
            arrow[0][0][:] = -1.0
    assert repr(replayed(cache)) == before


def test_numbers_are_kept_as_arrays(cache: BlockCache) -> None:
    block = keep(cache, Kind.RAW_PICKLE, raw([([0.5] * 784, 3)] * 10))
    assert isinstance(block, NumbersBlock)
    (kept,) = cache.order(0, None)
    assert isinstance(cache.open(kept), NumbersBlock)
    status = cache.status(0)
    assert status["memory_bytes"] + status["disk_bytes"] == 10 * (784 * 4 + 1)


def test_only_consumed_rows_are_kept(cache: BlockCache) -> None:
    kept, _ = cache.opened(Kind.RAW_PICKLE, raw([1, 2, 3, 4]), None)
    assert kept is not None
    cache.add(kept, 1, 3)
    cache.add(kept, 2, 2)
    assert replayed(cache) == [[2, 3]]
    assert cache.status(0)["rows"] == 2
    assert cache.status(1) == NONE
    assert cache.order(1, None) == []


def test_memory_first_then_the_file_then_nothing(tmp_path: Path) -> None:
    cache = BlockCache(tmp_path)
    cache.begin(0, NodeCache(memory_bytes=1000, disk_bytes=1000))
    blocks = [[bytes([i]) * 400] for i in range(5)]
    for rows in blocks[:4]:
        keep(cache, Kind.RAW_PICKLE, raw([*rows, None]))
    status = cache.status(0)
    assert 800 < status["memory_bytes"] <= 1000
    assert 800 < status["disk_bytes"] <= 1000
    assert replayed(cache) == [[*rows, None] for rows in blocks[:4]]
    assert keep(cache, Kind.RAW_PICKLE, raw([*blocks[4], None])).rows(0, 1) == blocks[4]
    assert cache.status(0)["problem"].startswith("rows need more than")
    assert (replayed(cache), cache.status(0)["memory_bytes"], cache.status(0)["disk_bytes"]) == ([], 0, 0)
    # What comes later is not kept either, and a new epoch begins anew.
    keep(cache, Kind.RAW_PICKLE, raw([1]))
    assert replayed(cache) == []
    cache.begin(1, NodeCache())
    keep(cache, Kind.RAW_PICKLE, raw([1]))
    assert cache.status(1)["rows"] == 1


def test_a_disk_that_can_not_be_written_is_said(tmp_path: Path) -> None:
    cache = BlockCache(tmp_path / "missing")
    cache.begin(0, NodeCache(memory_bytes=0))
    keep(cache, Kind.RAW_PICKLE, raw([1]))
    assert "can not be written: No such file" in cache.status(0)["problem"]


def test_blocks_are_shuffled_by_a_seed(cache: BlockCache) -> None:
    for number in range(20):
        keep(cache, Kind.RAW_PICKLE, raw([number]))
    one, again, other = (replayed(cache, seed) for seed in ("1", "1", "2"))
    assert one == again != other
    assert sorted(one) == sorted(other) == [[number] for number in range(20)]
    assert replayed(cache) == [[number] for number in range(20)]


@pytest.mark.parametrize("unnamed", [True, False], ids=["unnamed", "unlinked"])
def test_the_file_is_private_and_has_no_name(tmp_path: Path, unnamed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not unnamed:
        monkeypatch.delattr(os, "O_TMPFILE")
    cache = BlockCache(tmp_path)
    cache.begin(0, NodeCache(memory_bytes=0))
    keep(cache, Kind.RAW_PICKLE, raw([1, 2]))
    assert cache._file is not None
    found = os.fstat(cache._file)
    assert (found.st_nlink, stat.S_IMODE(found.st_mode), found.st_uid) == (0, 0o600, os.getuid())
    assert list(tmp_path.iterdir()) == []
    assert not os.get_inheritable(cache._file)
    descriptor = cache._file
    cache.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)


def test_a_closed_cache_gives_and_takes_nothing(cache: BlockCache) -> None:
    keep(cache, Kind.RAW_PICKLE, raw([1]))
    (kept,) = cache.order(0, None)
    cache.close()
    if kept.places:
        assert cache.open(kept) is None
    cache.begin(1, NodeCache())
    keep(cache, Kind.RAW_PICKLE, raw([1]))
    assert cache.status(1) == NONE
    cache.close()


def test_the_file_lies_in_the_executors_own_folder(tmp_path: Path) -> None:
    assert local_folder({"SPARK_LOCAL_DIRS": f"{tmp_path}/missing,{tmp_path}"}) == tmp_path
    assert local_folder({}) == Path.cwd()


def test_limits_below_zero_are_refused() -> None:
    with pytest.raises(ConfigError, match="negative"):
        NodeCache(memory_bytes=-1)
    assert NodeCache.from_dict(NodeCache(shuffle=True, seed=3).to_dict()) == NodeCache(shuffle=True, seed=3)


def test_a_file_that_was_cut_off_is_an_error(tmp_path: Path) -> None:
    cache = BlockCache(tmp_path)
    cache.begin(0, NodeCache(memory_bytes=0))
    keep(cache, Kind.RAW_PICKLE, raw([1, 2]))
    assert cache._file is not None
    os.ftruncate(cache._file, 1)
    with pytest.raises(FeedError, match="can not be read: the file of the cache ended"):
        cache.open(cache.order(0, None)[0])
    assert module._bytes_of(np.arange(2, dtype=np.int16)).nbytes == 4
