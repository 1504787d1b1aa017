"""Files: damage, compression, folders, sidecar, inference, and the commit of a write."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tfos_core.errors import ConfigError
from tfos_core.storage import storage_of
from tfos_core.tfrecords.encode import encode
from tfos_core.tfrecords.errors import CorruptRecordError
from tfos_core.tfrecords.fields import RecordType, fields_of
from tfos_core.tfrecords.folders import InputFile, list_files, pack, read_sidecar
from tfos_core.tfrecords.inference import infer_schema
from tfos_core.tfrecords.options import ReadMode, ReadOptions, WriteOptions, paths_of
from tfos_core.tfrecords.reading import ReadTask
from tfos_core.tfrecords.writing import SaveMode, WriteJob, WrittenFile

NUMBERS = pa.record_batch({"n": pa.array(range(10)), "t": pa.array([f"row {i}" for i in range(10)])})
#: What one record of NUMBERS takes with its frame.
FRAME = len(encode(NUMBERS.slice(0, 1), fields_of(NUMBERS.schema, RecordType.EXAMPLE)).data)
CORRUPT = pa.schema([*NUMBERS.schema, pa.field("_corrupt_record", pa.string())])


def frames_of(batch: Any) -> bytes:
    return encode(batch, fields_of(batch.schema, RecordType.EXAMPLE)).data.tobytes()


def save(path: Path, *batches: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(frames_of(batch) for batch in batches))
    return path


def load(path: Path, schema: Any = NUMBERS.schema, **options: Any) -> list[dict[str, Any]]:
    files = list_files([str(path)])
    columns = tuple(dict.fromkeys(name for file in files for name, _ in file.partition))
    task = ReadTask(schema=schema, options=ReadOptions(**options), partition_columns=columns)
    return pa.Table.from_batches(task.read(files), schema).to_pylist()


def infer(path: Path, **options: Any) -> dict[str, str]:
    schema = infer_schema(list_files([str(path)]), ReadOptions(**options))
    return {field.name: str(field.type) for field in schema}


def damage(path: Path, offset: int) -> None:
    data = bytearray(path.read_bytes())
    data[offset] ^= 0x40
    path.write_bytes(data)


# -- damage


def test_a_changed_byte_is_an_error_with_file_and_offset(tmp_path: Path) -> None:
    file = save(tmp_path / "a", NUMBERS)
    damage(file, 3 * FRAME + 20)
    with pytest.raises(CorruptRecordError, match=f"{file}: the record at byte {3 * FRAME}") as caught:
        load(file)
    assert (caught.value.path, caught.value.offset) == (str(file), 3 * FRAME)
    assert "PERMISSIVE" in (caught.value.hint or "")


def test_permissive_leaves_damaged_records_out_and_counts_them(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = save(tmp_path / "a", NUMBERS)
    damage(file, 3 * FRAME + 20)
    damage(file, 5 * FRAME + 20)
    rows = load(file, mode=ReadMode.PERMISSIVE)
    assert [row["n"] for row in rows] == [0, 1, 2, 4, 6, 7, 8, 9]
    assert "2 records" in caplog.text


def test_permissive_gives_damaged_records_as_rows_when_the_schema_has_a_column_for_them(tmp_path: Path) -> None:
    file = save(tmp_path / "a", NUMBERS)
    damage(file, 3 * FRAME + 20)
    rows = load(file, CORRUPT, mode=ReadMode.PERMISSIVE)
    assert len(rows) == 10
    (bad,) = [row for row in rows if row["_corrupt_record"]]
    assert bad["n"] is None
    assert f"byte {3 * FRAME}" in bad["_corrupt_record"]


@pytest.mark.parametrize("mode", list(ReadMode))
def test_a_damaged_length_ends_the_file_there(tmp_path: Path, mode: ReadMode) -> None:
    file = save(tmp_path / "a", NUMBERS)
    damage(file, 4 * FRAME + 1)
    if mode is ReadMode.FAILFAST:
        with pytest.raises(CorruptRecordError, match=f"byte {4 * FRAME} can not be used: the checksum of its length"):
            load(file, mode=mode)
    else:
        assert [row["n"] for row in load(file, mode=mode)] == [0, 1, 2, 3]


@pytest.mark.parametrize("cut", [1, 5, 15, 20, FRAME - 1])
def test_a_file_that_ends_inside_a_record_is_an_error(tmp_path: Path, cut: int) -> None:
    file = save(tmp_path / "a", NUMBERS)
    file.write_bytes(file.read_bytes()[: 9 * FRAME + cut])
    with pytest.raises(CorruptRecordError, match=f"byte {9 * FRAME} can not be used: the file ends inside this record"):
        load(file)
    assert len(load(file, mode=ReadMode.PERMISSIVE)) == 9


@pytest.mark.parametrize("keep", [0.3, 0.9])
def test_a_cut_off_gzip_file_is_an_error_and_gives_what_came_before(tmp_path: Path, keep: float) -> None:
    many = pa.record_batch({"n": pa.array(range(5000)), "t": pa.array([str(i * 7919) for i in range(5000)])})
    file = tmp_path / "a.gz"
    whole = gzip.compress(frames_of(many))
    file.write_bytes(whole[: int(len(whole) * keep)])
    with pytest.raises(CorruptRecordError, match="ends inside the compressed data"):
        load(file)
    rows = load(file, mode=ReadMode.PERMISSIVE)
    assert rows == many.slice(0, len(rows)).to_pylist()
    assert len(rows) > 5000 * keep * 0.5


# -- compression


@pytest.mark.parametrize("compress", [gzip.compress, zlib.compress, bytes])
def test_compression_is_recognised_by_content_not_by_name(tmp_path: Path, compress: Any) -> None:
    file = tmp_path / "records"
    file.write_bytes(compress(frames_of(NUMBERS)))
    assert load(file) == NUMBERS.to_pylist()


def test_gzip_files_may_have_several_members(tmp_path: Path) -> None:
    file = tmp_path / "a.gz"
    file.write_bytes(gzip.compress(frames_of(NUMBERS)) + gzip.compress(frames_of(NUMBERS)))
    assert load(file) == NUMBERS.to_pylist() * 2


# -- folders


def test_partition_folders_become_columns_and_hidden_files_are_ignored(tmp_path: Path) -> None:
    save(tmp_path / "day=1" / "kind=a%2Fb" / "part", NUMBERS.slice(0, 1))
    save(tmp_path / "day=2" / "kind=__HIVE_DEFAULT_PARTITION__" / "part", NUMBERS.slice(1, 1))
    save(tmp_path / "_temporary" / "part", NUMBERS)
    save(tmp_path / ".part", NUMBERS)
    assert infer(tmp_path) == {"n": "int64", "t": "string", "day": "int32", "kind": "string"}
    schema = pa.schema([*NUMBERS.schema, pa.field("day", pa.int32()), pa.field("kind", pa.string())])
    assert load(tmp_path, schema) == [
        {"n": 0, "t": "row 0", "day": 1, "kind": "a/b"},
        {"n": 1, "t": "row 1", "day": 2, "kind": None},
    ]


def test_wildcards_choose_files(tmp_path: Path) -> None:
    save(tmp_path / "a-1", NUMBERS.slice(0, 1))
    save(tmp_path / "b-1", NUMBERS.slice(1, 1))
    assert [Path(file.path).name for file in list_files([str(tmp_path / "a-*")])] == ["a-1"]


def test_a_path_that_does_not_exist_or_has_another_scheme_is_refused() -> None:
    with pytest.raises(ConfigError, match="does not exist"):
        list_files(["/no/such/folder"])
    with pytest.raises(ConfigError, match="nosuch://"):
        storage_of("nosuch://host/x")


def test_small_files_share_a_task_and_large_ones_do_not() -> None:
    files = [InputFile(path=str(i), size=size) for i, size in enumerate([200 << 20, 1, 1, 1])]
    groups = pack(files, 128 << 20)
    assert [[file.path for file in group] for group in groups] == [["0"], ["1"], ["2"], ["3"]]
    assert len(pack([InputFile(path=str(i), size=1) for i in range(1000)], 128 << 20)) < 100


# -- inference


def test_the_schema_is_widened_over_all_sampled_files(tmp_path: Path) -> None:
    save(tmp_path / "1", pa.record_batch({"n": pa.array([[1]]), "l": pa.array([[1]]), "x": pa.array([b"abc"])}))
    save(tmp_path / "2", pa.record_batch({"n": pa.array([[0.5]]), "l": pa.array([[1, 2]]), "x": pa.array([b"\xff"])}))
    assert infer(tmp_path) == {"l": "list<item: int64>", "n": "double", "x": "binary"}


def test_a_feature_that_is_always_empty_is_an_array_and_a_hint_makes_bytes_binary(tmp_path: Path) -> None:
    save(tmp_path / "1", pa.record_batch({"e": pa.array([[]], pa.list_(pa.float32())), "t": pa.array(["a"])}))
    assert infer(tmp_path, binary_features=("t",)) == {"e": "list<item: float>", "t": "binary"}


def test_bytes_and_numbers_in_one_feature_are_refused_with_the_place(tmp_path: Path) -> None:
    save(tmp_path / "1", pa.record_batch({"x": pa.array([1])}), pa.record_batch({"x": pa.array(["a"])}))
    with pytest.raises(ConfigError, match="'x' holds bytes in some records and numbers in others"):
        infer(tmp_path)


def test_the_sample_is_bounded_and_reaches_over_the_files(tmp_path: Path) -> None:
    for number in range(20):
        late = number == 19
        save(tmp_path / f"{number:02d}", pa.record_batch({"a": pa.array([1] * 50)}), pa.record_batch({"late": pa.array([late])}))
    assert infer(tmp_path, sample_files=20, sample_records=100) == {"a": "int64"}
    assert infer(tmp_path, sample_files=20, sample_records=2000) == {"a": "int64", "late": "int64"}


def test_nothing_to_infer_from_is_an_error_that_says_so(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    with pytest.raises(ConfigError, match="no records"):
        infer(tmp_path)


# -- writing

SPARK_SCHEMA = {
    "type": "struct",
    "fields": [
        {"name": "n", "type": "long", "nullable": True, "metadata": {}},
        {"name": "t", "type": "string", "nullable": True, "metadata": {}},
    ],
}


def start(path: Path, mode: SaveMode = SaveMode.ERROR, **options: Any) -> WriteJob:
    return WriteJob.start(str(path), NUMBERS.schema, SPARK_SCHEMA, WriteOptions(**options), mode)


def write(path: Path, mode: SaveMode = SaveMode.ERROR, **options: Any) -> tuple[WrittenFile, ...]:
    job = start(path, mode, **options)
    files = job.task().write([NUMBERS], 0)
    job.commit(files)
    return files


def test_nothing_is_visible_before_the_commit_and_nothing_is_left_after_an_abort(tmp_path: Path) -> None:
    job = start(tmp_path / "out")
    job.task().write([NUMBERS], 0)
    assert not (tmp_path / "out").exists()
    assert list(storage_of(str(tmp_path)).files_below(str(tmp_path))) == []
    job.abort()
    assert list(tmp_path.iterdir()) == []


def test_files_of_attempts_that_were_not_reported_are_no_part_of_the_result(tmp_path: Path) -> None:
    job = start(tmp_path / "out")
    job.task().write([NUMBERS], 0)
    second = job.task().write([NUMBERS], 0)
    job.commit(second)
    assert sorted(file.name for file in (tmp_path / "out").iterdir()) == sorted([second[0].below, "_SUCCESS", "_tfos_schema.json"])
    assert [file.name for file in tmp_path.iterdir()] == ["out"]


def test_an_existing_output_is_refused_replaced_or_extended(tmp_path: Path) -> None:
    write(tmp_path / "out")
    with pytest.raises(ConfigError, match="already exists"):
        write(tmp_path / "out")
    write(tmp_path / "out", SaveMode.APPEND)
    assert len(load(tmp_path / "out")) == 20
    write(tmp_path / "out", SaveMode.OVERWRITE)
    assert len(load(tmp_path / "out")) == 10
    assert [file.name for file in tmp_path.iterdir()] == ["out"]


def test_an_append_of_other_columns_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "out")
    other = {"type": "struct", "fields": [{"name": "n", "type": "string", "nullable": True, "metadata": {}}]}
    with pytest.raises(ConfigError, match=r"n long.*n string"):
        WriteJob.start(str(tmp_path / "out"), pa.schema({"n": pa.string()}), other, WriteOptions(), SaveMode.APPEND)


def test_partition_columns_become_folders_and_are_not_in_the_records(tmp_path: Path) -> None:
    files = write(tmp_path / "out", partition_by=("t",))
    assert sum(file.rows for file in files) == 10
    assert (tmp_path / "out" / "t=row 3").is_dir()
    assert sorted(row["n"] for row in load(tmp_path / "out")) == list(range(10))
    sidecar = read_sidecar([str(tmp_path / "out" / "t=row 3")])
    assert sidecar is not None
    assert sidecar.partition_by == ("t",)


def test_a_partition_column_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="'day'"):
        start(tmp_path / "out", partition_by=("day",))


# -- options


def test_a_misspelt_option_is_refused_with_the_one_that_was_meant() -> None:
    with pytest.raises(ConfigError) as caught:
        ReadOptions.of({"path": "x", "recordTyp": "Example"})
    assert "recordType" in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("name", "value"),
    [("recordType", "Record"), ("compression", "snappy"), ("mode", "DROP"), ("sampleFiles", "0"), ("sidecar", "yes")],
)
def test_a_value_that_an_option_can_not_have_is_refused(name: str, value: str) -> None:
    with pytest.raises(ConfigError, match=f"option {name} is '{value}'"):
        ReadOptions.of({name: value})


def test_options_have_no_case_and_paths_may_be_several() -> None:
    assert ReadOptions.of({"RECORDTYPE": "sequenceexample"}).record_type is RecordType.SEQUENCE_EXAMPLE
    assert paths_of({"paths": '["a", "b"]'}) == ("a", "b")
    assert WriteOptions.of({"partitionBy": "a, b", "compression": "GZIP"}).partition_by == ("a", "b")
