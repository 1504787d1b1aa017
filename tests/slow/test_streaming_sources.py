"""Streams: a stop in the middle of a batch, lines from a socket, and where the schema of files comes from."""

from __future__ import annotations

import socket
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from testbed.clusters import Recorder, started_cluster
from testbed.spark_context import start_context
from testbed.stream_nodes import take_all
from testbed.waiting import poll_until

from tfos_core.errors import ConfigError
from tfos_core.jobplan import StreamPlan
from tfos_core.shim.streaming import open_stream

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark import SparkContext
    from pyspark.sql import SparkSession

LONGEST_S = 60.0


@pytest.fixture(scope="module")
def sc() -> Iterator[SparkContext]:
    with start_context("local-cluster[2,1,1024]") as context:
        yield context


@pytest.fixture
def spark(sc: SparkContext) -> SparkSession:
    from pyspark.sql import SparkSession

    return SparkSession(sc)


def drop(folder: Path, name: str, *lines: str) -> None:
    """Put a file into the watched folder as a whole."""
    (folder.parent / name).write_text("".join(f"{line}\n" for line in lines))
    (folder.parent / name).rename(folder / name)


def test_a_stop_feeds_the_batch_in_flight_to_its_end(sc: SparkContext, spark: SparkSession, tmp_path: Path) -> None:
    recorder, folder, gate = Recorder(), tmp_path / "watched", tmp_path / "gate"
    folder.mkdir()
    with started_cluster(sc, take_all, {"gate": str(gate)}, 2, on_event=recorder) as cluster:
        stream = cluster.train(spark.readStream.format("text").load(str(folder)), interval=0.2)
        drop(folder, "first", *map(str, range(20)))
        recorder.wait_for("feed_progress", LONGEST_S)
        stream.request_stop("the test has seen enough")
        drop(folder, "second", "too late")
        assert not stream.wait(1.0), "it did not wait for the batch in flight"
        gate.touch()
        cluster.shutdown(timeout=LONGEST_S)
    assert (stream.batches, stream.rows) == (1, 20)
    assert recorder.all("stream_finished")[0].reason == "the test has seen enough"


def test_lines_from_a_socket_are_fed(sc: SparkContext, spark: SparkSession) -> None:
    recorder = Recorder()
    with socket.create_server(("127.0.0.1", 0)) as server:
        plan = StreamPlan(source="socket", host="127.0.0.1", port=server.getsockname()[1], interval=0.2)
        with started_cluster(sc, take_all, {}, 2, on_event=recorder) as cluster:
            stream = cluster.train(open_stream(spark, plan, None), interval=plan.interval)
            server.settimeout(LONGEST_S)
            connection, _ = server.accept()
            with connection:
                connection.sendall(b"one\ntwo\nthree\n")
                poll_until(lambda: stream.rows == 3, LONGEST_S, what="three rows")
                assert stream.stop(timeout=LONGEST_S)
            cluster.shutdown(timeout=LONGEST_S)


def test_the_rows_of_files_have_the_schema_of_the_spec_or_that_of_the_files_that_are_there(
    spark: SparkSession, tmp_path: Path
) -> None:
    plan = StreamPlan(source="files", path=str(tmp_path), format="csv", max_files=1)
    with pytest.raises(ConfigError, match="have no schema") as caught:
        open_stream(spark, plan, None)
    assert "stream.options.schema" in str(caught.value.hint)
    named = open_stream(spark, replace(plan, options={"schema": "x float, y float"}, columns=("y",)), None)
    assert named.dtypes == [("y", "float")]
    (tmp_path / "a.csv").write_text("n,m\n1,b\n")
    read = replace(plan, options={"header": True, "inferSchema": True})
    assert open_stream(spark, read, None).dtypes == [("n", "int"), ("m", "string")]
