"""Functions that test clusters run on their nodes; executors import them by name. `args` is a dict.

A node tells the test what it did through files in `args["folder"]`, so that nothing depends on what is tested.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import resource
import signal
import time
from pathlib import Path
from typing import Any

from testbed.waiting import poll_until

__all__ = (
    "consume",
    "consume_slowly",
    "die_once",
    "export_model",
    "fail",
    "fail_after_feed",
    "fail_like_a_peer",
    "ignore_feed",
    "join_own_server",
    "loop_synchronously",
    "note_rows",
    "notes",
    "return_early",
    "serve_and_consume",
    "serve_or_train",
    "show_cluster",
    "stay",
    "train_synchronously",
)


class UnavailableError(Exception):
    """Named like what TensorFlow raises on a node whose peer has gone."""


def note(args: dict[str, Any], ctx: Any, **values: Any) -> None:
    """Leave a file for the test: one for each node and process."""
    folder = Path(args["folder"])
    name = f"{ctx.job_name}-{ctx.task_index}.{os.getpid()}"
    (folder / f".{name}").write_text(json.dumps({"pid": os.getpid(), "folder": str(Path.cwd())} | values))
    (folder / f".{name}").rename(folder / f"{name}.json")


def notes(folder: Path) -> dict[str, list[dict[str, Any]]]:
    """What the nodes have left, by node name, in the test's process."""
    found: dict[str, list[dict[str, Any]]] = {}
    for path in sorted(folder.glob("[!.]*.json")):
        found.setdefault(path.name.partition(".")[0].replace("-", ":"), []).append(json.loads(path.read_text()))
    return found


def consume(args: dict[str, Any], ctx: Any) -> None:
    """Take all rows."""
    note(args, ctx)
    feed = ctx.get_data_feed()
    rows = 0
    while not feed.should_stop():
        rows += len(feed.next_batch(args.get("batch_size", 32)))
        print(f"{ctx.job_name}:{ctx.task_index} has taken {rows} rows")
    note(args, ctx, rows=rows)


def fail(args: dict[str, Any], ctx: Any) -> None:
    """The nodes in `args["failing"]` fail at once, the others take rows."""
    note(args, ctx)
    if ctx.executor_id in args["failing"]:
        raise ValueError(f"no column 'label' on {ctx.job_name}:{ctx.task_index}")
    feed = ctx.get_data_feed()
    while not feed.should_stop():
        feed.next_batch(32)


def fail_like_a_peer(args: dict[str, Any], ctx: Any) -> None:
    """Node 1 has the bug, a moment after node 0 has noticed that something is wrong with its peer."""
    if ctx.executor_id == 0:
        note(args, ctx)
        raise UnavailableError("failed to connect to all addresses")
    poll_until(lambda: notes(Path(args["folder"])).get("worker:0"), 60, what="node 0 fails first")
    time.sleep(0.5)  # the real thing: news of the consequence is faster than that of the cause
    raise ValueError("no column 'label'")


def return_early(args: dict[str, Any], ctx: Any) -> None:
    """All steps that were asked for are done after `args["rows"]` rows."""
    feed = ctx.get_data_feed()
    note(args, ctx, rows=len(feed.next_batch(args["rows"])))


def stay(args: dict[str, Any], ctx: Any) -> None:
    """Take one batch and then work on it for ever, in a child process too."""
    child = os.fork()
    if child == 0:
        with contextlib.suppress(KeyboardInterrupt):
            time.sleep(300)
        os._exit(0)
    feed = ctx.get_data_feed() if ctx.mgr is not None else None
    rows = len(feed.next_batch(10)) if feed is not None else 0
    print(f"step 1 of {ctx.job_name}:{ctx.task_index} begins")
    note(args, ctx, rows=rows, child=child)
    time.sleep(300)


def ignore_feed(args: dict[str, Any], ctx: Any) -> None:
    """Never take a row."""
    note(args, ctx)
    time.sleep(300)


def consume_slowly(args: dict[str, Any], ctx: Any) -> None:
    """Take `args["batch_size"]` rows in each step of `args["step_s"]`; notes how far the process grew."""
    feed = ctx.get_data_feed()
    # What feeding itself needs (NumPy, pyarrow) is loaded with the first batch.
    rows = len(feed.next_batch(args["batch_size"]))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    while not feed.should_stop():
        time.sleep(args["step_s"])
        rows += len(feed.next_batch(args["batch_size"]))
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    note(args, ctx, rows=rows, grown_bytes=(after - before) * 1024)


def fail_after_feed(args: dict[str, Any], ctx: Any) -> None:
    """Take all rows; worker 0 fails when nobody feeds any more, as an export that finds its disk full."""
    consume(args, ctx)
    if ctx.task_index == 0:
        time.sleep(args["after_s"])
        raise OSError("No space left on device: /models")


def serve_or_train(args: dict[str, Any], ctx: Any) -> None:
    """A ps serves for ever, an evaluator waits for checkpoints, a worker ends once all are there."""
    note(args, ctx)
    if ctx.job_name in ("ps", "evaluator"):
        time.sleep(300)
    everybody = sum(map(len, ctx.cluster_spec.values()))
    poll_until(lambda: len(notes(Path(args["folder"]))) == everybody, 60, what="every node runs")


def show_cluster(args: dict[str, Any], ctx: Any) -> None:
    """Note what this node knows of the cluster; only the chief ends by itself, when all have noted."""
    note(
        args,
        ctx,
        tf_config=json.loads(os.environ["TF_CONFIG"]),
        cluster_spec=ctx.cluster_spec,
        num_workers=ctx.num_workers,
    )
    if ctx.job_name == "chief":
        poll_until(lambda: len(notes(Path(args["folder"]))) == args["nodes"], 60, what="all nodes have noted")
    else:
        time.sleep(300)


def join_own_server(args: dict[str, Any], ctx: Any) -> None:
    """Every node starts a server by itself and joins it, so that nobody trains."""
    import tensorflow as tf

    server = tf.distribute.Server(ctx.cluster_spec, job_name=ctx.job_name, task_index=ctx.task_index)
    note(args, ctx, target=server.target)
    server.join()


def serve_and_consume(args: dict[str, Any], ctx: Any) -> None:
    """Start the role's server; ps join theirs, the others take all rows and return."""
    _, server = ctx.start_cluster_server()
    if ctx.job_name == "ps":
        note(args, ctx)
        server.join()
    else:
        consume(args, ctx)


def export_model(args: dict[str, Any], ctx: Any) -> None:
    """Every node exports to one path."""
    import tensorflow as tf

    module = tf.Module()
    module.weights = tf.Variable(tf.random.normal([1000, 100]))
    module.serve = tf.function(lambda x: x @ module.weights, input_signature=[tf.TensorSpec([None, 1000])])
    path = ctx.export_saved_model(module, args["export_dir"])
    note(args, ctx, path=path)


def train_synchronously(args: dict[str, Any], ctx: Any) -> None:
    """`model.fit` with MultiWorkerMirroredStrategy on whatever rows come; rows are (x, y).

    The layers are those whose fast kernels do not take the empty batches of a node that has run out.
    """
    import tensorflow as tf

    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    steps = StepCounter()
    with strategy.scope():
        layers = tf.keras.layers
        pooled = [layers.Conv2D(2, 3, padding="same", activation="relu"), layers.MaxPooling2D(), layers.Flatten()]
        image = [layers.InputLayer(input_shape=(1,)), layers.Dense(16), layers.Reshape((4, 4, 1))]
        model = tf.keras.Sequential([*image, *pooled, layers.Dense(1)])
        model.compile("sgd", "mse")
    dataset = ctx.get_data_feed().as_dataset(args["batch_size"])
    dataset = dataset.map(lambda x, y: tuple(tf.reshape(tf.cast(value, tf.float32) / 256, [-1, 1]) for value in (x, y)))
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    epochs: list[int] = []
    callback = tf.keras.callbacks.LambdaCallback(on_batch_end=steps, on_epoch_end=lambda epoch, logs: epochs.append(epoch))
    model.fit(dataset.with_options(options), epochs=ctx.num_epochs, verbose=0, callbacks=[callback])
    weights = [float(value) for value in model.layers[-1].get_weights()[0].flatten()]
    note(args, ctx, steps=steps.count, epochs=epochs, weights=weights)


def loop_synchronously(args: dict[str, Any], ctx: Any) -> None:
    """A loop of the program's own (`args["loop"]`): every step waits for all, and nothing pads a node that has no rows."""
    import tensorflow as tf

    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    with strategy.scope():
        weight = tf.Variable(0.0)

    @tf.function
    def step(x: Any, y: Any) -> Any:
        x, y = tf.cast(x, tf.float32), tf.cast(y, tf.float32)
        gradient = tf.reduce_mean(2.0 * x * (weight * x - y))
        replicas = tf.distribute.get_replica_context()
        weight.assign_sub(0.0001 * replicas.all_reduce(tf.distribute.ReduceOp.MEAN, gradient))

    counting = CountingStrategy(strategy)
    exec(args["loop"], {"ctx": ctx, "args": argparse.Namespace(**args), "strategy": counting, "train_step": step})
    note(args, ctx, steps=len(counting.sizes), weights=[float(weight.numpy())], sizes=sorted(set(counting.sizes)))


def die_once(args: dict[str, Any], ctx: Any) -> None:
    """Worker 1 is killed after its first batch; when the job is started again everybody takes all rows."""
    feed = ctx.get_data_feed()
    rows = len(feed.next_batch(10))
    if ctx.restart_count == 0 and ctx.task_index == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    while not feed.should_stop():
        rows += len(feed.next_batch(10))
    note(args, ctx, rows=rows, restart_count=ctx.restart_count, first_epoch=ctx.first_epoch)


class CountingStrategy:
    """Notes how many rows every step has."""

    def __init__(self, strategy: Any) -> None:
        self._strategy = strategy
        self.sizes: list[int] = []

    def run(self, function: Any, args: tuple[Any, ...]) -> Any:
        self.sizes.append(int(args[0].shape[0]))
        return self._strategy.run(function, args=args)


class StepCounter:
    """Counts the steps of `fit`."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, batch: int, logs: Any) -> None:
        self.count += 1


def note_rows(args: dict[str, Any], ctx: Any) -> None:
    """Take all rows and note each as text, in the order of their coming; worker 1 may be killed after `args["killed_after"]`."""
    feed = ctx.get_data_feed()
    rows: list[str] = []
    note(args, ctx)
    while not feed.should_stop():
        rows += map(repr, feed.next_batch(args.get("batch_size", 7)))
        if ctx.restart_count == 0 and ctx.task_index == 1 and len(rows) >= args.get("killed_after", math.inf):
            os.kill(os.getpid(), signal.SIGKILL)
    note(args, ctx, rows=rows, restart_count=ctx.restart_count)
