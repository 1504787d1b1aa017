"""`as_dataset`: what an iteration is, without Spark; the last tests make a real tf.data.Dataset."""

from __future__ import annotations

import importlib.util
import itertools
from typing import Any

import numpy as np
import pytest

from tfos_core.errors import ConfigError, FeedError
from tfos_core.feed import dataset as feed_dataset
from tfos_core.feed import pace as feed_pace
from tfos_core.feed.blocks import Block, ColumnsBlock, RowsBlock, decode
from tfos_core.feed.datafeed import DataFeed
from tfos_core.feed.dataset import BatchSource
from tfos_core.feed.elements import arrays
from tfos_core.feed.hub import FeedHub
from tfos_core.feed.inbox import Stream
from tfos_core.feed.keeping import NodeCache
from tfos_core.feed.packing import pack_list


def put(hub: FeedHub, rows: list[Any], seq: int = 0, stream: Stream | None = None) -> None:
    """What an intake does with a partition that holds `rows`, or with a block of one."""
    stream = stream or Stream(seq=seq, partition=0, attempt=0, infer=False, on_drained=lambda _: None)
    packed = pack_list(rows)
    data = b"".join(bytes(memoryview(buffer).cast("B")) for buffer in packed.buffers)
    payload = np.frombuffer(bytearray(data), dtype=np.uint8)
    hub.inbox.end_epochs_before(seq)
    hub.first_block(0, seq, lambda: decode(packed.kind, payload))
    assert hub.budget.reserve(len(data))
    hub.inbox.put(stream, packed.kind, payload, len(data))
    hub.inbox.finish(stream)


def end(hub: FeedHub, seq: int = 0, final: bool = False, spec: Any = None) -> None:
    hub.on_message({"op": "feed.end", "seq": seq, "final": final, "spec": spec})


def source(hub: FeedHub, size: int, **kwargs: Any) -> BatchSource:
    spec = hub.await_spec()
    assert spec is not None
    options: dict[str, Any] = {"mapping": None, "all_epochs": False, "drop_remainder": False} | kwargs
    return BatchSource(hub=hub, batch_size=size, spec=spec, **options)


def sizes(source: BatchSource) -> list[int]:
    return [len(element) for element in source()]


def test_an_iteration_is_an_epoch_with_a_short_last_batch(hub: FeedHub) -> None:
    put(hub, [float(i) for i in range(5)])
    put(hub, [float(i) for i in range(5, 10)])
    end(hub, 0)
    put(hub, [1.0] * 3, seq=1)
    end(hub, 1, final=True)
    batches = source(hub, 4)
    assert [element.tolist() for element in batches()] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert sizes(batches) == [3]
    assert sizes(batches) == []


def test_all_epochs_is_one_iteration(hub: FeedHub) -> None:
    put(hub, [1.0] * 5)
    end(hub, 0)
    put(hub, [1.0] * 5, seq=1)
    end(hub, 1, final=True)
    assert sizes(source(hub, 4, all_epochs=True)) == [4, 4, 2]


def test_a_remainder_can_be_dropped(hub: FeedHub) -> None:
    put(hub, [1.0] * 5)
    end(hub, 0, final=True)
    assert sizes(source(hub, 4, drop_remainder=True)) == [4]


def test_an_abandoned_iteration_leaves_the_rest_of_its_epoch_to_the_next(hub: FeedHub) -> None:
    put(hub, [float(i) for i in range(10)])
    end(hub, 0, final=True)
    batches = source(hub, 4)
    abandoned = batches()
    assert next(abandoned).tolist() == [0, 1, 2, 3]
    assert [element.tolist() for element in batches()] == [[4, 5, 6, 7], [8, 9]]
    # The earlier one has been superseded and does not take rows any more.
    assert list(abandoned) == []


def test_a_node_without_a_block_gets_the_structure_and_yields_nothing(hub: FeedHub) -> None:
    spec = {"form": "single", "tensors": [{"name": "row", "dtype": "float32", "shape": []}]}
    end(hub, 0, final=True, spec=spec)
    assert sizes(source(hub, 4)) == []


def test_no_row_anywhere_is_an_error(hub: FeedHub) -> None:
    end(hub, 0, final=True)
    with pytest.raises(FeedError, match="no row was fed to any node"):
        DataFeed(hub).as_dataset(4)


def test_rows_that_fit_no_tensor_are_an_error(hub: FeedHub) -> None:
    put(hub, [[1.0], [1.0, 2.0]])
    with pytest.raises(FeedError, match="differ in length"):
        DataFeed(hub).as_dataset(4)
    with pytest.raises(ConfigError, match="batch_size is 0"):
        DataFeed(hub).as_dataset(0)
    with pytest.raises(ConfigError, match="for training"):
        DataFeed(hub, train_mode=False).as_dataset(4)


def test_a_later_block_of_another_shape_is_named(hub: FeedHub) -> None:
    put(hub, [[1.0, 2.0]])
    put(hub, [[1.0, 2.0, 3.0]])
    with pytest.raises(FeedError, match=r"shape \[3\], but the first ones had \[2\]"):
        sizes(source(hub, 4))


needs_tensorflow = pytest.mark.skipif(importlib.util.find_spec("tensorflow") is None, reason="TensorFlow is not installed")


@needs_tensorflow
def test_rows_of_features_and_label_make_what_fit_takes(hub: FeedHub) -> None:
    import tensorflow as tf

    put(hub, [([float(i), 0.5], i) for i in range(5)])
    end(hub, 0, final=True)
    dataset = DataFeed(hub).as_dataset(2)
    assert dataset.element_spec == (tf.TensorSpec([None, 2], tf.float32), tf.TensorSpec([None], tf.int64))
    assert dataset.options().experimental_distribute.auto_shard_policy == tf.data.experimental.AutoShardPolicy.OFF
    assert dataset.options().autotune.enabled is False
    assert dataset.cardinality().numpy() == tf.data.UNKNOWN_CARDINALITY
    assert [(features.shape[0], labels.numpy().tolist()) for features, labels in dataset] == [(2, [0, 1]), (2, [2, 3]), (1, [4])]
    assert list(dataset) == []


@needs_tensorflow
def test_input_mapping_makes_a_dict_and_strings_become_bytes(hub: FeedHub) -> None:
    put(hub, [("a", 1.0), ("b", 2.0)])
    end(hub, 0, final=True)
    dataset = DataFeed(hub, input_mapping={"x1": "word", "x2": "weight"}).as_dataset(2)
    (element,) = dataset.as_numpy_iterator()
    assert {name: values.tolist() for name, values in element.items()} == {"word": [b"a", b"b"], "weight": [1.0, 2.0]}
    assert dataset.element_spec["weight"].dtype.name == "float32"


@needs_tensorflow
def test_the_dataset_of_an_epoch_is_made_once_for_all_epochs(hub: FeedHub) -> None:
    import tensorflow as tf

    put(hub, [1.0, 2.0])
    end(hub, 0)
    put(hub, [3.0, 4.0], seq=1)
    end(hub, 1, final=True)
    feed = DataFeed(hub)
    first = feed.as_dataset(2)
    assert [element.numpy().tolist() for element in first] == [[1.0, 2.0]]
    assert feed.as_dataset(2) is first
    assert feed.as_dataset(2, all_epochs=True) is not first
    with tf.Graph().as_default():
        assert feed.as_dataset(2) is not first
    assert [element.numpy().tolist() for element in feed.as_dataset(2)] == [[3.0, 4.0]]


def test_stacks_hold_the_same_batches_ever_more_at_once(hub: FeedHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed_pace, "_ONE_BY_ONE", 1)
    rows = [float(i) for i in range(90)]
    put(hub, rows[:70])
    put(hub, rows[70:])
    end(hub, 0, final=True)
    found = list(source(hub, 4).stacks())
    # Partitions end within a batch, which the next one completes.
    assert [stack.shape for stack in found] == [(1, 4)] * 4 + [(2, 4), (2, 4), (4, 4), (4, 4), (1, 4), (5, 4), (1, 2)]
    assert np.concatenate([stack.ravel() for stack in found]).tolist() == rows


def test_stacks_lie_where_tensorflow_takes_them_without_a_copy(hub: FeedHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed_pace, "_ONE_BY_ONE", 1)
    one = Stream(seq=0, partition=0, attempt=0, infer=False, on_drained=lambda _: None)
    for number in range(10):
        put(hub, [float(number)] * 3, stream=one)
    end(hub, 0, final=True)
    stacks = [stack for stack in source(hub, 4).stacks() if stack.size > 4]
    assert [stack.ctypes.data % 64 for stack in stacks] == [0] * len(stacks)
    assert stacks


def test_a_replayed_epoch_goes_on_as_the_one_before_ended(hub: FeedHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed_dataset.time, "monotonic", lambda: 0.0)
    hub.cache.begin(0, NodeCache())
    put(hub, [1.0] * 80, stream=Stream(seq=0, partition=0, attempt=0, infer=False, keeps=True, on_drained=lambda _: None))
    end(hub, 0)
    batches = source(hub, 4)
    assert [stack.shape[0] for stack in batches.stacks()] == [1] * 16 + [2, 2]
    for seq in (1, 2):
        hub.on_message({"op": "feed.replay", "seq": seq, "kept": 0, "epoch": seq, "shuffle": None, "again": True})
        end(hub, seq, final=seq == 2)
    assert [stack.shape[0] for stack in batches.stacks()] == [1, 16, 3]
    abandoned = batches.stacks()
    assert next(abandoned).shape[0] == 1
    assert [stack.shape[0] for stack in batches.stacks()] == [1] * 16 + [2, 1], "who breaks off gets few at once again"


def test_a_stack_is_bounded_by_its_bytes(hub: FeedHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed_pace, "_ONE_BY_ONE", 1)
    monkeypatch.setattr(feed_dataset, "_STACK_BYTES", 1000)
    put(hub, [("x" * 56, [1.0, 2.0]) for _ in range(80)])
    end(hub, 0, final=True)
    assert [len(words) for words, _ in source(hub, 4).stacks()] == [1, 1, 1, 1, 2, 2, 3, 3, 3, 3]


def test_the_first_batches_come_one_by_one(hub: FeedHub) -> None:
    put(hub, [1.0] * 80)
    end(hub, 0, final=True)
    assert [stack.shape[0] for stack in source(hub, 4).stacks()] == [1] * 16 + [2, 2]


@needs_tensorflow
@pytest.mark.parametrize("partitions", [[400], [20, 1, 1, 1, 377]], ids=["of one size", "some of one batch"])
def test_no_more_batches_are_taken_in_advance_than_were_used(
    hub: FeedHub, monkeypatch: pytest.MonkeyPatch, partitions: list[int]
) -> None:
    """What is in advance is lost to an iteration that is abandoned."""
    monkeypatch.setattr(feed_pace, "_in_time", lambda batches, step_s, lasts_s: batches)
    for batches in partitions:
        put(hub, [1.0] * 4 * batches)
    end(hub, 0, final=True)
    given = [0]
    monkeypatch.setattr(hub, "count_step", lambda batches=1: given.append(given[-1] + batches))
    ahead = [given[-1] - used for used, _ in enumerate(DataFeed(hub).as_dataset(4), start=1)]
    assert given[-1] == len(ahead) == 400
    # One is made beside the first step; of the largest stacks one is in use, and one ready.
    assert all(most <= min(max(used, 1), 32) for used, most in enumerate(ahead, start=1))
    assert max(after - before for before, after in itertools.pairwise(given)) == 16


def test_a_slow_consumer_gets_batches_one_by_one(hub: FeedHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed_pace, "_ONE_BY_ONE", 1)
    put(hub, [1.0] * 80)
    end(hub, 0, final=True)
    monkeypatch.setattr(feed_dataset.time, "monotonic", itertools.count(step=0.03).__next__)
    assert [stack.shape[0] for stack in source(hub, 4).stacks()] == [1] * 20


def test_a_slow_consumer_gets_several_batches_of_a_replayed_epoch(hub: FeedHub, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for what it takes, and a call into Python for every batch would slow training down."""
    monkeypatch.setattr(feed_pace, "_ONE_BY_ONE", 1)
    put(hub, [1.0] * 80, stream=Stream(seq=0, partition=-1, attempt=0, infer=False, on_drained=lambda _: None))
    end(hub, 0, final=True)
    monkeypatch.setattr(feed_dataset.time, "monotonic", itertools.count(step=0.03).__next__)
    assert [stack.shape[0] for stack in source(hub, 4).stacks()] == [1, 1, 1, 2, 4, 8, 3]


def test_a_stack_takes_only_rows_that_have_come(hub: FeedHub) -> None:
    put(hub, [1.0] * 8)
    stacks = source(hub, 4).stacks()
    assert [next(stacks).shape for _ in range(2)] == [(1, 4), (1, 4)]
    put(hub, [1.0] * 4)
    assert next(stacks).shape == (1, 4)


def test_python_floats_become_float32_in_every_form() -> None:
    huge, exact = 1e300, [[0.1, -2.5, float("inf")], [3.0, 4.0, 5.0]]
    assert arrays(RowsBlock(exact), 0, 2)[0].tolist() == np.array(exact, np.float32).tolist()
    assert arrays(RowsBlock([0.1, 7, True]), 0, 3)[0].tolist() == np.array([0.1, 7, 1], np.float32).tolist()
    with np.errstate(over="ignore"):
        assert arrays(RowsBlock([1.0, huge]), 0, 2)[0].tolist() == [1.0, float("inf")]
    assert arrays(RowsBlock([1.0, np.float64(2)]), 0, 2)[0].dtype == np.float32
    with pytest.raises(FeedError, match="nulls"):
        arrays(RowsBlock([1.0, None]), 0, 2)
    with pytest.raises(FeedError, match="differ in length"):
        arrays(RowsBlock([[1.0], [1.0, 2.0]]), 0, 2)


@needs_tensorflow
@pytest.mark.parametrize(
    "column",
    [
        ["a", "b\0c"],
        ["a", "é"],
        [b"a", "é".encode()],
        ["a", "é".encode()],
        [b"\xff", "a"],
        [bytearray(b"a"), "é"],
        [np.str_("a"), "é"],
        [np.str_("a"), "b"],
    ],
    ids=["ascii", "strings", "bytes", "both", "bytes first", "bytearrays", "numpy", "numpy ascii"],
)
def test_strings_of_every_kind_become_bytes(hub: FeedHub, column: list[Any]) -> None:
    put(hub, column)
    end(hub, 0, final=True)
    (found,) = DataFeed(hub).as_dataset(2).as_numpy_iterator()
    assert found.tolist() == [value.encode() if isinstance(value, str) else bytes(value) for value in column]


def test_arrays_of_texts_keep_their_shape() -> None:
    (found,) = arrays(ColumnsBlock(False, [np.array([["a", "é"], ["b", "c\0d"]])]), 0, 2)
    assert found.tolist() == [[b"a", "é".encode()], [b"b", b"c\0d"]]


@pytest.mark.parametrize(
    "block", [RowsBlock(["a", "b\ud800"]), ColumnsBlock(False, [np.array(["a", "b\ud800"])])], ids=["texts", "an array"]
)
def test_a_text_that_utf8_can_not_express_is_named(block: Block) -> None:
    with pytest.raises(FeedError, match=r"'row' holds the text 'b\\ud800', which UTF-8 can not express"):
        arrays(block, 0, 2)


@pytest.mark.parametrize("other", [5, 1.5, None])
def test_strings_with_anything_else_are_refused(other: Any) -> None:
    with pytest.raises(FeedError, match="holds strings and other values"):
        arrays(RowsBlock([b"a", other]), 0, 2)
