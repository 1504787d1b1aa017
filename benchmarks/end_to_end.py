"""Samples a second of training: fed by Spark, from the nodes' caches, and by plain tf.distribute without Spark.

    python benchmarks/end_to_end.py [--rounds 5] [--gigabytes 1.0] [--case NAME]... [--workers N]...

`digits` are the images of jobspecs/data, `synthetic` is made by the script in a temporary folder: rows of 784 floats and a label.
The plain side is as many processes as there are workers, with the same model, batch, threads and variables of TensorFlow, a
TF_CONFIG of their own, and each with its share of the rows in a local file that TensorFlow reads (`FixedLengthRecordDataset`). Our
side reads Parquet with Spark and feeds it, on executors of one core. Both stay up, and rounds alternate: plain processes train some
epochs; then one `train` call with a cache on the nodes trains one epoch more, of which Spark feeds the first. All of an epoch
counts, from its start to its last step, the Spark job included. Every epoch is one call of `model.fit` on both sides.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import training_nodes
from report import Measurement, measure, print_table, write_results
from session import start_spark

HERE = Path(__file__).resolve().parent
DIGITS = HERE.parent / "jobspecs" / "data" / "digits" / "train.csv"
UNIT = "samples/s"
PARTS = 8
SEEN = "epochs"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A data set: `epochs` of a round beside the one that Spark feeds, `batch` of all workers together."""

    name: str
    shown: str
    batch: int
    epochs: int


CASES = (
    Case(name="digits", shown="digits (1,433 images of 64 floats)", batch=64, epochs=10),
    Case(name="synthetic", shown="784 floats and a label", batch=256, epochs=1),
)


def main() -> None:
    """Run every case, print a table for each, and write the results as they come."""
    options = _parse()
    settings = {name: value for name, value in vars(options).items() if value is not None}
    with tempfile.TemporaryDirectory(prefix="bench-data-") as folder:
        for case in CASES:
            if options.case and case.name not in options.case:
                continue
            rows = _make_data(case, Path(folder) / case.name, options)
            for workers in options.workers or (1, 2):
                found = _run(case, Path(folder) / case.name, rows, workers, options)
                print(f"\nwritten: {write_results('end_to_end', found, master=f'local-cluster[{workers},1,1024]', **settings)}")


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="measured rounds of every side (default 5)")
    parser.add_argument("--gigabytes", type=float, default=1.0, help="size of the synthetic data set (default 1.0)")
    parser.add_argument("--case", action="append", choices=[case.name for case in CASES], help="only this one; repeatable")
    parser.add_argument("--workers", action="append", type=int, choices=(1, 2), help="only so many; repeatable")
    return parser.parse_args()


def _make_data(case: Case, folder: Path, options: argparse.Namespace) -> int:
    """Parquet files for Spark, and for each number of workers the shares of plain processes; how many rows there are."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder.mkdir()
    (folder / "parquet").mkdir()
    rows = 0
    with contextlib.ExitStack() as stack:
        shares = {
            count: [
                stack.enter_context((folder / training_nodes.SHARE.format(index=i, count=count)).open("wb")) for i in range(count)
            ]
            for count in (1, 2)
        }
        for part, (pixels, labels) in enumerate(_parts(case, options.gigabytes)):
            offsets = pa.array(np.arange(0, pixels.size + 1, pixels.shape[1]), pa.int32())
            images = pa.ListArray.from_arrays(offsets, pa.array(pixels.reshape(-1)))
            pq.write_table(pa.table({"image": images, "label": labels}), folder / "parquet" / f"part-{part}.parquet")
            words = np.concatenate([pixels.view(np.int32), labels.astype(np.int32)[:, None]], axis=1)
            for files in shares.values():
                for index, file in enumerate(files):
                    words[index :: len(files)].tofile(file)
            rows += len(labels)
    return rows


def _parts(case: Case, gigabytes: float) -> Iterator[tuple[Any, Any]]:
    if case.name == "digits":
        table = np.loadtxt(DIGITS, delimiter=",", skiprows=1, dtype=np.float32)
        for part in np.array_split(table, PARTS):
            yield np.ascontiguousarray(part[:, 1:]) / 16, part[:, 0].astype(np.int64)
        return
    rows = int(gigabytes * 1e9 / PARTS / training_nodes.label_bytes(case.name))
    random = np.random.default_rng(1)
    for _ in range(PARTS):
        yield random.random((rows, training_nodes.PIXELS[case.name]), dtype=np.float32), random.integers(0, 10, rows)


def _run(case: Case, folder: Path, rows: int, workers: int, options: argparse.Namespace) -> list[Measurement]:
    from tfos_core import TFCluster
    from tfos_core.options import ClusterOptions, NodeCache

    ended: list[Any] = []
    args = {
        "case": case.name,
        "batch_size": case.batch,
        "epochs": (options.rounds + 1) * (case.epochs + 1),
        "environment": str(folder / "environment.json"),
    }
    plain: list[float] = []
    fed: list[float] = []
    cached: list[float] = []
    with start_spark(master=f"local-cluster[{workers},1,1024]") as spark:
        data = spark.read.parquet(str(folder / "parquet"))
        settings = ClusterOptions(keras="legacy", gpus=0, cache=NodeCache(), on_event=lambda event: _note(event, ended))
        cluster = TFCluster.run(
            spark.sparkContext,
            training_nodes.train_fed,
            args,
            workers,
            0,
            input_mode=TFCluster.InputMode.SPARK,
            options=settings,
        )
        cluster.train(data, case.epochs + 1)
        with _plain_processes(case, folder, workers) as processes:
            _plain_round(processes)
            for number in range(options.rounds):
                plain.append(case.epochs * rows / _plain_round(processes))
                ended.clear()
                cluster.train(data, case.epochs + 1)
                fed.append(ended[0].rows / ended[0].seconds)
                cached.append(sum(event.rows for event in ended[1:]) / sum(event.seconds for event in ended[1:]))
                assert [event.rows for event in ended] == [rows] * (case.epochs + 1)
                assert all(event.cached for event in ended[1:])
                print(f"{number}: plain {plain[-1]:,.0f}, fed {fed[-1]:,.0f}, cached {cached[-1]:,.0f} {UNIT}", flush=True)
        cluster.shutdown()
    _end_gateway()
    name = f"{case.shown}, {workers} worker{'s' if workers > 1 else ''}"
    base = measure(name, "plain tf.distribute", plain, unit=UNIT)
    ours = [measure(name, side, rates, unit=UNIT) for side, rates in (("fed by Spark", fed), ("from the nodes' caches", cached))]
    print_table(name, [(base, None), *((each, base) for each in ours)])
    for each in ours:
        ratios = [mine / theirs for mine, theirs in zip(each.rounds, plain, strict=True)]
        print(f"  {each.side}: {np.median(ratios):.3f} of plain, from {min(ratios):.3f} to {max(ratios):.3f}")
    return [base, *ours]


def _end_gateway() -> None:
    """The JVM keeps the folders of its first SparkContext, which are gone; the next one needs a JVM of its own."""
    from pyspark import SparkContext

    gateway, SparkContext._gateway, SparkContext._jvm = SparkContext._gateway, None, None
    if gateway is not None:
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait(20)


def _note(event: Any, ended: list[Any]) -> None:
    if event.kind == "feed_finished":
        ended.append(event)
    elif event.kind == "warning":
        print(event.message)


@contextlib.contextmanager
def _plain_processes(case: Case, folder: Path, workers: int) -> Iterator[list[subprocess.Popen[str]]]:
    """Processes that are ready to train, with the variables that a node of ours has."""
    environment = json.loads((folder / "environment.json").read_text())
    addresses = [f"127.0.0.1:{port}" for port in _free_ports(workers)]
    command = [sys.executable, training_nodes.__file__, case.name, str(folder), str(case.batch), str(case.epochs)]
    processes = []
    try:
        for index in range(workers):
            config = {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}}
            processes.append(
                subprocess.Popen(
                    command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    text=True,
                    env=os.environ | environment | {"TF_CONFIG": json.dumps(config), "CUDA_VISIBLE_DEVICES": ""},
                )
            )
        _await(processes, "ready")
        yield processes
    finally:
        for process in processes:
            if process.stdin is not None:
                process.stdin.close()
        for process in processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(10)
            process.kill()


def _plain_round(processes: list[subprocess.Popen[str]]) -> float:
    started = time.perf_counter()
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    _await(processes, "done")
    return time.perf_counter() - started


def _await(processes: list[subprocess.Popen[str]], word: str) -> None:
    for process in processes:
        assert process.stdout is not None
        said = process.stdout.readline().strip()
        assert said == word, f"a plain process said {said!r} instead of {word!r}"


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


if __name__ == "__main__":
    main()
