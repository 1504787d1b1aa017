"""TensorFlowOnSpark 2.2.5 as the other side: its own virtual environment, and a process in it that runs one round when told to.

This file is both: `Upstream` is what the benchmarks use; run as a script by the other environment's interpreter it is the process.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Self

from usage import MARK, PeakMemory, Usage

__all__ = ("REQUIREMENTS", "Upstream", "install")

HERE = Path(__file__).resolve().parent
OURS = ("SPARK_", "PYSPARK_", "TFOS_", MARK)
FOLDER = HERE.parent / ".venv-upstream"
# pkg_resources, which 2.2.5 imports, left setuptools with release 81. The rest is what our own side runs with.
REQUIREMENTS = ("tensorflowonspark==2.2.5", "pyspark==4.3.0", "tensorflow==2.21.0", "setuptools<81", "pandas<3", "pyarrow")


def install() -> Path:
    """The interpreter of the other environment, which is made when it is not there."""
    python = FOLDER / "bin" / "python"
    done = FOLDER / "installed.json"
    if not (done.exists() and json.loads(done.read_text()) == list(REQUIREMENTS)):
        print(f"installing {' '.join(REQUIREMENTS)} into {FOLDER}", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", str(FOLDER)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", *REQUIREMENTS], check=True)
        done.write_text(json.dumps(REQUIREMENTS))
    return python


class Upstream:
    """The process in the other environment; a context manager.

    It answers one line for each line it is sent. Between them it is idle, so that its rounds can alternate with ours.
    """

    def __init__(self, mode: str, *arguments: str) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="upstream-")
        environment = {key: value for key, value in os.environ.items() if not key.startswith(OURS)}
        python = install()
        self._process = subprocess.Popen(
            [str(python), str(HERE / "upstream.py"), mode, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=(Path(self._folder.name) / "stderr").open("wb"),
            text=True,
            cwd=self._folder.name,
            env=environment | {"PYTHONPATH": str(HERE), "PYSPARK_PYTHON": str(python)},
            start_new_session=True,
        )
        self._answer()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            assert self._process.stdin is not None
            self._process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(60)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, 9)
        self._process.wait()
        self._folder.cleanup()

    def round(self, kind: str = "round") -> Any:
        """Run one round over there; `memory` is one that is watched instead of timed."""
        self._say(kind)
        return self._answer()

    def begin(self, shape: str, *, rows: int, partitions: int, batch: int) -> None:
        """Make these rows, and start a cluster for rounds with them."""
        self._say("begin " + json.dumps({"shape": shape, "rows": rows, "partitions": partitions, "batch": batch}))
        self._answer()

    def end(self) -> None:
        """Shut that cluster down; does not wait for it."""
        self._say("end")

    def _say(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            errors = (Path(self._folder.name) / "stderr").read_text(errors="replace")
            raise RuntimeError(f"the upstream side ended:\n{errors[-4000:]}")
        return json.loads(line)


def consume(args: Any, ctx: Any) -> None:
    """The function that upstream runs on a node: takes rows and forgets them."""
    from tensorflowonspark import TFNode  # type: ignore[import-not-found]

    feed = TFNode.DataFeed(ctx.mgr, True)
    while not feed.should_stop():
        feed.next_batch(args["batch_size"])


def answer(args: Any, ctx: Any) -> None:
    """Takes rows and answers each with its last value."""
    from tensorflowonspark import TFNode

    feed = TFNode.DataFeed(ctx.mgr, False)
    while not feed.should_stop():
        rows = feed.next_batch(args["batch_size"])
        if rows:
            feed.batch_results([row[-1] for row in rows])


def end_at_once(args: Any, ctx: Any) -> None:
    """A node whose work is done when it starts."""


def _serve() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("mode", choices=["feed", "inference", "lifecycle", "tfrecords"])
    parser.add_argument("--rows", type=int, default=0)
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--jar", default="")
    options = parser.parse_args()
    # Spark and TensorFlow print; our answers have stdout to themselves.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    # By name, so that executors import it instead of unpickling a copy of __main__.
    import upstream

    feeds = {"feed": upstream.serve_feed, "inference": upstream.serve_feed}
    serve = feeds | {"lifecycle": upstream.serve_lifecycle, "tfrecords": upstream.serve_tfrecords}
    for answer in serve[options.mode](options):
        print(json.dumps(answer), file=answers)


def _context(**settings: str) -> Any:
    from pyspark import SparkConf
    from pyspark.sql import SparkSession
    from session import SETTINGS

    # Its nodes are numbered by executor only if each executor has one core, and it keeps one feed task per executor.
    return (
        SparkSession.builder.config(
            conf=SparkConf().setAll(list((SETTINGS | {"spark.executor.memory": "2048m"} | settings).items()))
        )
        .master("local-cluster[2,1,2048]")
        .getOrCreate()
    )


def serve_tfrecords(options: argparse.Namespace) -> Any:
    """Seconds of one write and one read for each line of stdin; the first answer says that it is ready."""
    from upstream_dfutil import serve

    yield from serve(_context(**{"spark.jars": options.jar}), options)


class Passes:
    """Passes over the rows of one shape after the other, each on a cluster of its own."""

    def __init__(self, spark: Any, *, infers: bool) -> None:
        self._spark = spark
        self._infers = infers
        self._cluster: Any = None
        self._data: Any = None
        self._rows: Any = None
        self._count = 0

    def begin(self, *, shape: str, rows: int, partitions: int, batch: int) -> None:
        """Make the rows and start the cluster."""
        from shapes import SHAPES, build
        from tensorflowonspark import TFCluster

        found = next(each for each in SHAPES if each.name == shape)
        self._count = rows
        self._data = build(self._spark, found, rows, partitions)
        self._rows = self._data.rdd if found.is_dataframe else self._data
        function = answer if self._infers else consume
        mode = TFCluster.InputMode.SPARK
        self._cluster = TFCluster.run(self._spark.sparkContext, function, {"batch_size": batch}, 2, 0, input_mode=mode)

    def run(self) -> None:
        """One pass."""
        if self._infers:
            assert self._cluster.inference(self._rows).count() == self._count
        else:
            self._cluster.train(self._rows, num_epochs=1)

    def end(self) -> None:
        """Shut the cluster down and forget the rows."""
        if self._cluster is not None:
            self._cluster.shutdown()
            self._data.unpersist()
            self._cluster = None


def serve_feed(options: argparse.Namespace) -> Any:
    """Seconds, or memory, of one pass over the rows for each line of stdin that asks for it."""
    usage = Usage()
    spark = _context()
    passes = Passes(spark, infers=options.mode == "inference")
    yield {"ready": True}
    for line in sys.stdin:
        what, _, settings = line.strip().partition(" ")
        if what == "begin":
            passes.begin(**json.loads(settings))
            yield {"ready": True}
        elif what == "end":
            passes.end()
        elif what == "memory":
            with PeakMemory(usage) as memory:
                passes.run()
            yield {"peak_mib": memory.peak_mib}
        else:
            cpu, started = usage.cpu_s(), time.perf_counter()
            passes.run()
            seconds = time.perf_counter() - started
            yield {"seconds": seconds, "cpu_s": usage.cpu_s() - cpu}
    passes.end()
    spark.stop()


def serve_lifecycle(options: argparse.Namespace) -> Any:
    """Seconds of `run` and of `shutdown` on executors that are up, for each line of stdin."""
    from tensorflowonspark import TFCluster

    spark = _context()
    sc = spark.sparkContext
    sc.parallelize(range(2), 2).count()
    yield {"ready": True}
    for _ in sys.stdin:
        started = time.perf_counter()
        cluster = TFCluster.run(sc, end_at_once, {}, 2, 0, input_mode=TFCluster.InputMode.SPARK)
        ready = time.perf_counter()
        cluster.shutdown()
        yield {"start_s": ready - started, "shutdown_s": time.perf_counter() - ready}
    spark.stop()


if __name__ == "__main__":
    _serve()
