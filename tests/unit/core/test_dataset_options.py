"""The options of the datasets that nodes get."""

from __future__ import annotations

import importlib.util
import itertools
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tfos_core.dataset_options import node_options

needs_tensorflow = pytest.mark.skipif(importlib.util.find_spec("tensorflow") is None, reason="TensorFlow is not installed")

#: The thread that tunes an iterator wakes 1.27 s after the start, and then after 2.55 s.
ITERATION_S, STALLED_S = 1.3, 0.8
ITERATIONS = 40


def seconds_of_the_end(dataset: Any, number: int) -> float:
    """How long the end of an iteration takes."""
    threading.Event().wait(0.02 * number)
    iterator = iter(dataset)
    until = time.monotonic() + ITERATION_S
    while time.monotonic() < until:
        next(iterator)
        threading.Event().wait(0.05)
    ends = time.monotonic()
    del iterator
    return time.monotonic() - ends


@needs_tensorflow
def test_the_end_of_an_iteration_waits_for_no_thread_that_sleeps() -> None:
    import tensorflow as tf

    numbers = tf.data.Dataset.from_generator(itertools.count, output_signature=tf.TensorSpec([], tf.int64))
    dataset = numbers.flat_map(tf.data.Dataset.from_tensors).with_options(node_options()).prefetch(2)
    # With autotuning about twelve ends take more than a second; on a busy machine one or two may, for reasons of their own.
    with ThreadPoolExecutor(ITERATIONS) as pool:
        seconds = sorted(pool.map(seconds_of_the_end, [dataset] * ITERATIONS, range(ITERATIONS)))
    assert seconds[-4] < STALLED_S


@needs_tensorflow
def test_a_program_may_switch_tuning_on_for_itself() -> None:
    import tensorflow as tf

    dataset = tf.data.Dataset.range(3).with_options(node_options())
    assert dataset.map(lambda number: number + 1).options().autotune.enabled is False
    own = tf.data.Options()
    own.autotune.enabled = True
    assert dataset.with_options(own).options().autotune.enabled is True
