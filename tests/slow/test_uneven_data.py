"""Nodes that get different numbers of rows: nothing hangs and no row is lost, for two and three nodes, `fit` and own loops."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from testbed import nodes
from testbed.clusters import Recorder, started_cluster
from testbed.spark_context import start_context

if TYPE_CHECKING:
    from pyspark import SparkContext

pytestmark = pytest.mark.timeout(600)

EPOCHS = 2

KEYED = "skewed keys"
#: Rows of every partition. Batches of 16 divide none of these.
SIZES = {
    "10 and 1000": [10, 1000],
    "an empty partition": [100, 0, 50, 70],
    "one partition, so that the other nodes get no row": [130],
    "fewer partitions than nodes": [90, 45],
    KEYED: [900, 11, 12, 13, 14, 15],
    "less than a batch everywhere": [5, 3, 7],
}


@pytest.fixture(scope="module", params=[2, 3])
def sc(request: pytest.FixtureRequest) -> Iterator[SparkContext]:
    """Two or three executors of one core."""
    with start_context(f"local-cluster[{request.param},1,1024]") as context:
        yield context


def count(sc: SparkContext) -> int:
    found = re.search(r"\[(\d+),", str(sc.master))
    assert found
    return int(found[1])


def rows(sc: SparkContext, sizes: list[int], *, keyed: bool = False) -> Any:
    """Pairs (x, 2x); `keyed`: dealt out by a key of theirs, as `repartition(n, "key")` does."""
    if keyed:
        keys = [key for key, size in enumerate(sizes) for _ in range(size)]
        return (
            sc.parallelize(keys, 2)
            .map(lambda key: (key, (float(key), 2.0 * key)))
            .partitionBy(len(sizes), partitionFunc=int)
            .values()
        )
    return sc.parallelize(range(len(sizes)), len(sizes)).flatMap(
        lambda number: [(float(i % 7), 2.0 * (i % 7)) for i in range(sizes[number])]
    )


def example_loop() -> str:
    page = Path(__file__).parents[2] / "docs" / "uneven-data.md"
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    return next(block for block in blocks if "strategy.run" in block)


@pytest.mark.parametrize("name", list(SIZES))
def test_fit_ends_and_every_row_is_taken(sc: SparkContext, nothing_left: None, tmp_path: Path, name: str) -> None:
    sizes = SIZES[name]
    events = Recorder()
    options: dict[str, Any] = {"keras": "legacy", "num_epochs": EPOCHS}
    args = {"folder": str(tmp_path), "batch_size": 16}
    with started_cluster(
        sc, nodes.train_synchronously, args, count(sc), options=options, on_event=events, reservation_timeout=120
    ) as running:
        report = running.train(rows(sc, sizes, keyed=name == KEYED), num_epochs=EPOCHS, feed_timeout=180, final=True)
        running.shutdown(timeout=180)
        whole = running.report()
    found = [entry for entries in nodes.notes(tmp_path).values() for entry in entries]
    assert report.rows == EPOCHS * sum(sizes)
    assert whole.left_over == {}
    assert {entry["steps"] for entry in found} == {found[0]["steps"]} != {0}
    assert all(entry["weights"] == found[0]["weights"] for entry in found)
    skews = [event.id for event in events.all("warning") if event.id in ("feed-skew", "feed-empty-node")]
    fed = [event.rows_per_node.values() for event in events.all("feed_finished")]
    assert bool(skews) == any(max(each) > 2 * min(each) for each in fed)


@pytest.mark.parametrize("name", list(SIZES))
def test_own_loops_make_equal_steps(sc: SparkContext, nothing_left: None, tmp_path: Path, name: str) -> None:
    loop = example_loop().replace("as_dataset(args.batch_size)", "as_dataset(args.batch_size, allow_empty=True)")
    args = {"folder": str(tmp_path), "batch_size": 4, "loop": loop}
    options: dict[str, Any] = {"equal_steps": True, "num_epochs": EPOCHS}
    with started_cluster(sc, nodes.loop_synchronously, args, count(sc), options=options, reservation_timeout=120) as running:
        data = rows(sc, SIZES[name], keyed=name == KEYED)
        report = running.train(data, num_epochs=EPOCHS, feed_timeout=180, final=True)
        running.shutdown(timeout=180)
        whole = running.report()
    found = [entry for entries in nodes.notes(tmp_path).values() for entry in entries]
    assert {entry["steps"] for entry in found} == {found[0]["steps"]} == set(whole.steps_per_node.values())
    assert all(entry["weights"] == found[0]["weights"] for entry in found)
    # What a node got is what it trained on in whole batches, and what it left over.
    assert report.rows == EPOCHS * sum(SIZES[name])
    for node, taken in whole.rows_per_node.items():
        assert taken == 4 * whole.steps_per_node[node] + whole.left_over.get(node, 0)
