"""Small functions that programs of 2022 use to bridge TensorFlow versions."""

from __future__ import annotations

from typing import Any

from tfos_core.export import export_saved_model as _export

__all__ = ("disable_auto_shard", "export_saved_model", "is_gpu_available")


def export_saved_model(model: Any, export_dir: str, is_chief: bool = False) -> None:
    """Write `model` to `export_dir` whole or not at all; nodes that are not the chief take part and keep nothing.

    Raises:
        ConfigError: there is no file system for `export_dir`.
    """
    _export(model, export_dir, keep=is_chief)


def disable_auto_shard(options: Any) -> None:
    """Switch auto-sharding off in `tf.data.Options`: every node already has its own rows."""
    import tensorflow as tf

    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF


def is_gpu_available() -> bool:
    """Whether TensorFlow sees a GPU."""
    import tensorflow as tf

    return bool(tf.config.list_physical_devices("GPU"))
