"""Training functions of pipelines; executors import them by name."""

from __future__ import annotations

import sys
from typing import Any

from testbed.nodes import note

__all__ = ("export_constant", "fail_to_train", "note_rows")


def note_rows(args: Any, ctx: Any) -> None:
    """Note what arrived, and the arguments."""
    feed = ctx.get_data_feed()
    rows: list[Any] = []
    while not feed.should_stop():
        rows += feed.next_batch(args.batch_size)
    found = [[value.tolist() if hasattr(value, "tolist") else value for value in row] for row in rows]
    told = {name: getattr(args, name) for name in ("rate", "batch_size", "epochs", "export_dir", "input_mapping")}
    note(vars(args), ctx, rows=found, told=told, num_epochs=ctx.num_epochs)


def fail_to_train(args: Any, ctx: Any) -> None:
    """Say what the arguments were."""
    raise ValueError(f"args {args!r}, argv {sys.argv!r}")


def export_constant(args: Any, ctx: Any) -> None:
    """Take all rows; the chief exports a model that adds `args.steps` to x."""
    feed = ctx.get_data_feed()
    while not feed.should_stop():
        feed.next_batch(args.batch_size)
    if ctx.is_chief:
        import tensorflow as tf

        module = tf.Module()
        module.steps = tf.Variable(float(args.steps))
        inputs = [tf.TensorSpec([None], tf.float32, name="x")]
        module.serve = tf.function(lambda x: {"b": x + module.steps, "a": -x}, input_signature=inputs)
        ctx.export_saved_model(module, args.export_dir, signatures=module.serve)
