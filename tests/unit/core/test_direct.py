"""A node's share of Parquet and TFRecord files: every row is on exactly one node, in arrays that a model takes."""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tfos_core.direct import DataError, DataRequest
from tfos_core.direct.ahead import ahead
from tfos_core.direct.mixing import mixed
from tfos_core.direct.request import BlockSource, plan_share
from tfos_core.direct.shares import Shard, share_of, shuffled
from tfos_core.direct.tensors import array_of
from tfos_core.errors import ConfigError
from tfos_core.storage import storage_of
from tfos_core.tfrecords.compression import Compression, write_compressed
from tfos_core.tfrecords.encode import encode_in_parts
from tfos_core.tfrecords.errors import CorruptRecordError
from tfos_core.tfrecords.fields import RecordType, fields_of
from tfos_core.tfrecords.framing import find_frame
from tfos_core.tfrecords.spark_types import arrow_schema_of_ddl, arrow_schema_of_json


def table(begin: int, end: int, text: str = "row") -> Any:
    """Rows with their number, and values of different sizes."""
    numbers = range(begin, end)
    return pa.table(
        {
            "id": pa.array(numbers, pa.int64()),
            "x": pa.array([[float(i), i + 0.5] for i in numbers], pa.list_(pa.float32())),
            "s": pa.array([text * (i % 7) for i in numbers], pa.string()),
        }
    )


def save_records(path: str, rows: Any, compression: Compression = Compression.NONE) -> str:
    fields = fields_of(rows.schema, RecordType.EXAMPLE)
    with storage_of(path).open_output(path) as file:
        stream = write_compressed(file, compression)
        for batch in rows.to_batches():
            for frames in encode_in_parts(batch, fields, RecordType.EXAMPLE):
                stream.write(frames.data.data)
        stream.finish()
    return path


def save_parquet(path: str, rows: Any, row_group_size: int = 1000) -> str:
    with storage_of(path).open_output(path) as file:
        pq.write_table(rows, file, row_group_size=row_group_size)
    return path


def passes(source: BlockSource, count: int = 1) -> list[list[Any]]:
    """What `count` passes yield."""
    return [list(source()) for _ in range(count)]


def ids(path: str, count: int, **request: Any) -> list[list[int]]:
    """The ids that each of `count` nodes reads in one pass."""
    nodes = []
    for index in range(count):
        source = plan_share(DataRequest(path=path, columns=["id"], shard=Shard(index=index, count=count), **request))
        nodes.append([int(value) for block in source() for value in block])
    return nodes


# -- shares


@given(st.lists(st.integers(0, 50), max_size=8), st.integers(1, 9), st.integers(0, 5))
def test_shares_are_a_partition_into_equal_sizes(lengths: list[int], count: int, seed: int) -> None:
    order = shuffled(len(lengths), seed)
    shares = [share_of(lengths, Shard(index=index, count=count), order) for index in range(count)]
    units = Counter((part.piece, unit) for share in shares for part in share for unit in range(part.begin, part.end))
    assert units == Counter((piece, unit) for piece, length in enumerate(lengths) for unit in range(length))
    sizes = [sum(part.end - part.begin for part in share) for share in shares]
    assert max(sizes) - min(sizes) <= 1


def test_the_order_of_pieces_depends_on_the_seed_only() -> None:
    assert shuffled(50, 1) == shuffled(50, 1) != shuffled(50, 2)
    assert shuffled(50, 1, 1) != shuffled(50, 1, 2)


@given(st.lists(st.integers(1, 40), min_size=1, max_size=6), st.integers(1, 60))
def test_mixing_gives_every_row_once(sizes: list[int], pool: int) -> None:
    starts = np.cumsum([0, *sizes])
    blocks = [
        [np.arange(begin, begin + size), np.arange(begin, begin + size) * 2] for begin, size in zip(starts, sizes, strict=False)
    ]
    out = list(mixed(iter(blocks), pool, (1, 2)))
    numbers = np.concatenate([block[0] for block in out])
    assert sorted(numbers) == list(range(sum(sizes)))
    assert (np.concatenate([block[1] for block in out]) == numbers * 2).all()


# -- reading ahead


def test_reading_ahead_keeps_the_order_and_passes_errors_on() -> None:
    def items() -> Iterator[int]:
        yield from range(100)
        raise ValueError("the end")

    seen: list[int] = []
    with pytest.raises(ValueError, match="the end"):
        seen.extend(ahead(items(), 3))
    assert seen == [] or seen == list(range(100))
    assert list(ahead(iter(range(100)), 1)) == list(range(100))


def test_reading_ahead_is_bounded_and_ends_with_its_reader() -> None:
    taken: list[int] = []
    third = threading.Event()

    def items() -> Iterator[int]:
        for number in itertools.count():
            taken.append(number)
            if number == 2:
                third.set()
            yield number

    before = set(threading.enumerate())
    reading = ahead(items(), 2)
    assert next(reading) == 0
    assert third.wait(30)
    reading.close()
    assert set(threading.enumerate()) <= before
    assert len(taken) <= 4


# -- files


@pytest.mark.parametrize("nodes", [1, 2, 3, 7])
def test_parquet_rows_are_dealt_evenly_and_each_once(tmp_path: Path, nodes: int) -> None:
    for number, (begin, end, group) in enumerate([(0, 1000, 1000), (1000, 1003, 1), (1003, 1500, 37), (1500, 1500, 10)]):
        save_parquet(str(tmp_path / f"{number}.parquet"), table(begin, end), group)
    read = ids(str(tmp_path), nodes)
    assert sorted(row for node in read for row in node) == list(range(1500))
    assert max(map(len, read)) - min(map(len, read)) <= 1
    assert read[0] == sorted(read[0])


@pytest.mark.parametrize("compression", list(Compression))
@pytest.mark.parametrize("nodes", [1, 2, 3, 7])
def test_records_are_dealt_about_evenly_and_each_once(tmp_path: Path, nodes: int, compression: Compression) -> None:
    for number, (begin, end) in enumerate([(0, 3000), (3000, 3001), (3001, 3500)]):
        save_records(str(tmp_path / f"{number}.tfrecord"), table(begin, end), compression)
    read = ids(str(tmp_path), nodes)
    assert sorted(row for node in read for row in node) == list(range(3500))
    assert max(map(len, read)) - min(map(len, read)) <= 0.05 * 3500 / nodes + 2


def test_more_nodes_than_rows_leave_some_without_any_but_with_the_same_element(tmp_path: Path) -> None:
    path = save_parquet(str(tmp_path / "a.parquet"), table(0, 2))
    sources = [plan_share(DataRequest(path=path, shard=Shard(index=index, count=5))) for index in range(5)]
    assert sum(len(block[0]) for source in sources for block in source()) == 2
    assert len({source.element for source in sources}) == 1


@settings(max_examples=30, deadline=None)
@given(
    sizes=st.lists(st.integers(0, 3000), min_size=1, max_size=40),
    cut=st.integers(0, 20000),
    block=st.sampled_from([64, 1000, 8 << 20]),
)
def test_a_frame_is_found_wherever_a_file_is_cut(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], cut: int, block: int
) -> None:
    path = tmp_path_factory.mktemp("frames") / "x"
    save_records(str(path), pa.table({"b": pa.array([bytes(size) for size in sizes])}))
    # The frame around a record: 12 bytes before it, 4 behind.
    starts, position, data = [0], 0, path.read_bytes()
    while position < len(data):
        position += 16 + int.from_bytes(data[position : position + 8], "little")
        starts.append(position)
    with path.open("rb") as file:
        assert find_frame(file, cut, block_bytes=block) == next((start for start in starts if start >= cut), starts[-1])


def test_a_pattern_and_partition_folders_choose_files_and_give_columns(tmp_path: Path) -> None:
    for day in (1, 2):
        (tmp_path / f"day={day}").mkdir()
        save_parquet(str(tmp_path / f"day={day}" / "a.parquet"), table(day * 10, day * 10 + 2))
        save_records(str(tmp_path / f"day={day}" / "b.tfrecord"), table(day * 10, day * 10 + 2))
    for ending in ("parquet", "tfrecord"):
        source = plan_share(DataRequest(path=f"{tmp_path}/*/*.{ending}", columns=["id"]))
        assert [int(value) for block in source() for value in block] == [10, 11, 20, 21]
    (tmp_path / "day=1" / "b.tfrecord").unlink()
    (tmp_path / "day=2" / "b.tfrecord").unlink()
    source = plan_share(DataRequest(path=str(tmp_path), columns=["day", "id"]))
    rows = [(int(day), int(number)) for days, numbers in source() for day, number in zip(days, numbers, strict=True)]
    assert rows == [(1, 10), (1, 11), (2, 20), (2, 21)]


@pytest.mark.parametrize("ending", ["parquet", "tfrecord"])
def test_files_elsewhere_are_read_through_fsspec(ending: str) -> None:
    filesystem = fsspec.filesystem("memory")
    try:
        save = save_parquet if ending == "parquet" else save_records
        for number in range(3):
            save(f"memory://data/{number}.{ending}", table(number * 100, number * 100 + 100))
        assert sorted(row for node in ids("memory://data", 2) for row in node) == list(range(300))
    finally:
        filesystem.store.clear()
        filesystem.pseudo_dirs[:] = [""]


def test_shuffled_passes_differ_and_are_the_same_rows(tmp_path: Path) -> None:
    for number in range(4):
        save_parquet(str(tmp_path / f"{number}.parquet"), table(number * 100, number * 100 + 100), 25)
    orders = []
    for index in range(2):
        source = plan_share(DataRequest(path=str(tmp_path), columns=["id"], shard=Shard(index=index, count=2), shuffle=30, seed=5))
        first, second = ([int(value) for block in blocks for value in block] for blocks in passes(source, 2))
        assert first != second
        assert sorted(first) == sorted(second)
        orders.append(first)
    assert sorted(orders[0] + orders[1]) == list(range(400))
    # Row groups are dealt in another order too: a file that is sorted by label does not put one label on one node.
    assert sorted(orders[0]) != list(range(200))


# -- elements


def element(path: str, **request: Any) -> Any:
    (block,) = plan_share(DataRequest(path=path, **request))()
    return block


@pytest.mark.parametrize("ending", ["parquet", "tfrecord"])
def test_columns_and_mapping_say_what_an_element_is(tmp_path: Path, ending: str) -> None:
    path = (save_parquet if ending == "parquet" else save_records)(str(tmp_path / f"a.{ending}"), table(0, 4, "é"))
    both = element(path, columns=["x", "id"])
    assert isinstance(both, tuple)
    assert both[0].tolist() == [[0.0, 0.5], [1.0, 1.5], [2.0, 2.5], [3.0, 3.5]]
    assert (both[0].dtype, both[1].dtype) == (np.float32, np.int64)
    assert element(path, columns=["id"]).tolist() == [0, 1, 2, 3]
    mapped = element(path, input_mapping={"s": "text", "id": "label"})
    assert list(mapped) == ["label", "text"]
    assert mapped["text"].tolist() == [b"", "é".encode(), "éé".encode(), "ééé".encode()]
    with pytest.raises(ConfigError, match="'y'") as caught:
        element(path, columns=["y"])
    assert "id" in str(caught.value.hint)


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (pa.array([[[1, 2]], [[3, 4]]]), [[[1, 2]], [[3, 4]]]),
        (pa.array([[1, 2], [3, 4], [5, 6]], pa.list_(pa.int8(), 2)).slice(1), [[3, 4], [5, 6]]),
        (pa.array([[1], [2], [3]]).slice(1, 1), [[2]]),
        (pa.array([True, False]), [True, False]),
        (pa.array(["a", "b", "a"]).dictionary_encode(), [b"a", b"b", b"a"]),
        (pa.array(["a", "é"], pa.large_string()), [b"a", "é".encode()]),
        (pa.array([["a", "b"]]), [[b"a", b"b"]]),
    ],
    ids=str,
)
def test_arrow_columns_become_arrays(column: Any, expected: list[Any]) -> None:
    assert array_of(column, "c", "f").tolist() == expected


@pytest.mark.parametrize(
    ("column", "text"),
    [
        (pa.array([1, None]), "holds nulls"),
        (pa.array([[1], [1, 2]]), r"different lengths \(1 to 2\)"),
        (pa.array([[1, None]]), "holds nulls"),
        (pa.array([0], pa.date32()), "date32"),
    ],
    ids=str,
)
def test_what_is_no_tensor_is_an_error_that_names_file_and_column(column: Any, text: str) -> None:
    with pytest.raises(DataError, match=f"some/file: .*'c'.*{text}"):
        array_of(column, "c", "some/file")


def test_rows_of_another_shape_in_a_later_file_are_named(tmp_path: Path) -> None:
    save_parquet(str(tmp_path / "a.parquet"), table(0, 3))
    other = table(3, 5).set_column(1, "x", pa.array([[1.0] * 3] * 2, pa.list_(pa.float32())))
    save_parquet(str(tmp_path / "b.parquet"), other)
    with pytest.raises(DataError, match=r"b\.parquet: values of 'x' have the shape \[3\], but the first ones have \[2\]"):
        passes(plan_share(DataRequest(path=str(tmp_path))))


# -- what goes wrong


def refused(path: Path | str, **request: Any) -> str:
    with pytest.raises((ConfigError, DataError, CorruptRecordError)) as caught:
        passes(plan_share(DataRequest(path=str(path), **request)))
    assert caught.value.hint
    return caught.value.message


def test_problems_name_the_file(tmp_path: Path) -> None:
    assert "nowhere" in refused(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    assert "no files with data" in refused(tmp_path / "empty")
    save_parquet(str(tmp_path / "none.parquet"), table(0, 0))
    assert "no row" in refused(tmp_path / "none.parquet")
    (tmp_path / "x.csv").write_text("a\n1\n")
    assert "x.csv is of no format" in refused(tmp_path / "x.csv")
    assert "x.csv is csv" in refused(tmp_path / "x.csv", format="csv")
    assert "x.csv can not be read as Parquet" in refused(tmp_path / "x.csv", format="parquet")
    save_parquet(str(tmp_path / "in" / "a.parquet"), table(0, 3))
    save_parquet(str(tmp_path / "in" / "b.parquet"), table(0, 3).drop_columns(["x"]))
    assert "b.parquet has no column 'x'" in refused(tmp_path / "in")
    save_parquet(str(tmp_path / "in" / "b.parquet"), table(0, 3).set_column(0, "id", pa.array(["1", "2", "3"])))
    assert "b.parquet has 'id' as string" in refused(tmp_path / "in")


def test_a_damaged_row_group_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(table(0, 5000), path, compression="snappy", use_dictionary=False)
    data = bytearray(path.read_bytes())
    data[2000:2600] = bytes(600)
    path.write_bytes(data)
    assert f"{path}: row group 0 can not be read" in refused(path)


def test_a_damaged_record_is_an_error_for_every_node_behind_it_or_left_out(tmp_path: Path) -> None:
    path = Path(save_records(str(tmp_path / "a.tfrecord"), table(0, 1000)))
    data = bytearray(path.read_bytes())
    data[1] ^= 0xFF
    path.write_bytes(data)
    for index in range(2):
        assert f"{path}: the record at byte 0" in refused(path, shard=Shard(index=index, count=2), options={"schema": "id bigint"})
    options = {"schema": "id bigint", "mode": "PERMISSIVE"}
    assert "no row" in refused(path, options=options)
    data[1] ^= 0xFF
    data[20] ^= 0xFF
    path.write_bytes(data)
    read = [
        int(value)
        for index in range(2)
        for block in plan_share(DataRequest(path=str(path), shard=Shard(index=index, count=2), options=options))()
        for value in block
    ]
    assert read == list(range(1, 1000))


def test_schemas_in_sparks_words_are_read_without_spark() -> None:
    schema = arrow_schema_of_ddl("id bigint, `a b` array<float> not null, money decimal(10, 2), n: int")
    assert [(field.name, str(field.type), field.nullable) for field in schema] == [
        ("id", "int64", True),
        ("a b", "list<item: float>", False),
        ("money", "decimal128(10, 2)", True),
        ("n", "int32", True),
    ]
    fields: Sequence[Mapping[str, Any]] = [
        {"name": "n", "type": "integer"},
        {"name": "x", "type": {"type": "array", "elementType": "short", "containsNull": True}},
    ]
    assert str(arrow_schema_of_json({"fields": fields}).field("x").type) == "list<item: int16>"
    with pytest.raises(ConfigError, match="'id'"):
        arrow_schema_of_ddl("id")
    with pytest.raises(ConfigError, match="map"):
        arrow_schema_of_ddl("m map<string,int>")


def save_images(folder: Path, count: int = 3000) -> str:
    """Rows of 3 KB, enough for several blocks; each holds its own number only."""
    pixels = np.repeat(np.arange(count, dtype=np.float32), 784)
    offsets = np.arange(0, count * 784 + 1, 784, dtype=np.int32)
    rows = pa.table({"image": pa.ListArray.from_arrays(pa.array(offsets), pa.array(pixels)), "label": pa.array(range(count))})
    return save_records(f"{folder}/images.tfrecord", rows)


def test_long_rows_of_several_blocks_keep_their_values_and_lie_where_tensorflow_does_not_copy_them(tmp_path: Path) -> None:
    path = save_images(tmp_path)
    blocks = list(plan_share(DataRequest(path=path))())
    assert len(blocks) > 1
    images, labels = (np.concatenate(arrays) for arrays in zip(*blocks, strict=True))
    assert images.shape == (3000, 784)
    assert (images == np.arange(3000)[:, None]).all()
    assert labels.tolist() == list(range(3000))
    assert [image.ctypes.data % 64 for image, _ in blocks] == [0] * len(blocks)


@pytest.mark.parametrize("place", [0, 1, 1499, 1500, 2999], ids=str)
def test_one_wrong_bit_in_a_long_row_is_found_in_any_place(tmp_path: Path, place: int) -> None:
    path = save_images(tmp_path)
    content = bytearray(Path(path).read_bytes())
    content[place * len(content) // 3000 + 12 + place] ^= 1
    Path(path).write_bytes(content)
    with pytest.raises(CorruptRecordError, match="checksum"):
        list(plan_share(DataRequest(path=path, options={"schema": "image array<float>, label bigint"}))())


def test_long_rows_behind_a_cut_off_one_are_not_lost_silently(tmp_path: Path) -> None:
    path = save_images(tmp_path)
    content = Path(path).read_bytes()
    Path(path).write_bytes(content[:-1000])
    with pytest.raises(CorruptRecordError, match="ends inside"):
        list(plan_share(DataRequest(path=path, options={"schema": "image array<float>, label bigint"}))())
