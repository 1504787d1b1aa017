"""The models of `end_to_end.py` and how they are trained: the same code in a node of ours and in a plain process.

As a program, one plain process: `python training_nodes.py CASE FOLDER BATCH_SIZE EPOCHS`, with TF_CONFIG in its environment. It
says "ready", trains EPOCHS epochs for every line that it reads, and says "done" after each time.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

__all__ = ("PIXELS", "SHARE", "label_bytes", "train_fed")

#: Floats of a row.
PIXELS = {"digits": 64, "synthetic": 784}
#: Where a plain process finds its rows: float32 pixels and an int32 label, one after the other.
SHARE = "share-{index}-of-{count}.bin"
_HIDDEN = {"digits": (512, 256), "synthetic": (1024, 1024)}


def label_bytes(case: str) -> int:
    """Bytes of a row, the label included."""
    return PIXELS[case] * 4 + 4


def train_fed(args: dict[str, Any], ctx: Any) -> None:
    """A node: every iteration over the feed is an epoch."""
    model = _make_model(args["case"], ctx.num_workers)
    kept = {name: value for name, value in os.environ.items() if name.startswith(("TF_", "OMP_")) and name != "TF_CONFIG"}
    Path(args["environment"]).write_text(json.dumps(kept))
    dataset = ctx.get_data_feed().as_dataset(args["batch_size"])
    for _ in range(args["epochs"]):
        model.fit(dataset, epochs=1, verbose=0)


def _make_model(case: str, workers: int) -> Any:
    import tensorflow as tf

    tf.keras.utils.set_random_seed(1)
    strategy = tf.distribute.MultiWorkerMirroredStrategy() if workers > 1 else tf.distribute.get_strategy()
    with strategy.scope():
        layers = [tf.keras.layers.Dense(size, activation="relu") for size in _HIDDEN[case]]
        model = tf.keras.Sequential([tf.keras.Input((PIXELS[case],)), *layers, tf.keras.layers.Dense(10)])
        loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(tf.keras.optimizers.SGD(0.01), loss)
    return model


def _own_rows(case: str, path: Path, batch_size: int) -> Any:
    """Rows of a local file, as a dataset of batches: read, batched and decoded by TensorFlow alone."""
    import tensorflow as tf

    pixels = PIXELS[case]

    def decode(rows: Any) -> Any:
        words = tf.io.decode_raw(rows, tf.int32)
        return tf.bitcast(words[:, :pixels], tf.float32), words[:, pixels]

    dataset = tf.data.FixedLengthRecordDataset(str(path), label_bytes(case)).batch(batch_size).map(decode)
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    # The end of an epoch would wait for the thread that tunes, by chance and for seconds: that is not what is compared.
    options.autotune.enabled = False
    # As a node's dataset, whose length nobody knows.
    return dataset.prefetch(2).take_while(lambda *_: True).with_options(options)


def _main() -> None:
    case, folder, batch_size, epochs = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    config = json.loads(os.environ["TF_CONFIG"])
    workers, index = len(config["cluster"]["worker"]), config["task"]["index"]
    model = _make_model(case, workers)
    dataset = _own_rows(case, folder / SHARE.format(index=index, count=workers), batch_size)
    print("ready", flush=True)
    for _ in sys.stdin:
        for _ in range(epochs):
            model.fit(dataset, epochs=1, verbose=0)
        print("done", flush=True)


if __name__ == "__main__":
    _main()
