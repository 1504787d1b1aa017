"""The options of a `tf.data.Dataset` that gives a node its own rows."""

from __future__ import annotations

from typing import Any

from tfos_core.compat import disable_auto_shard

__all__ = ("node_options",)


def node_options() -> Any:
    """Without auto-sharding, because every node already has its own rows, and without autotuning.

    The thread that tunes an iterator sleeps ever longer, up to a minute, and the end of the iterator waits for it. What ends the
    thread wakes it before it sets the flag that the thread then looks at (`CancellationManager` calls its callbacks first), so one
    that is quick goes back to sleep for the rest of its time. With TensorFlow 2.21 that happened to 17 of 55 iterators with a
    prefetch; an epoch of 10 s took 28 s. A program that wants tuning sets `autotune.enabled` in options of its own, which win.
    """
    import tensorflow as tf

    options = tf.data.Options()
    disable_auto_shard(options)
    options.autotune.enabled = False
    return options
