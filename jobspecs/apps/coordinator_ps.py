"""A digits classifier with ParameterServerStrategy: the chief coordinates `model.fit`, workers compute, ps hold the weights.

Needs legacy Keras (package tf_keras) and `input_mode: tensorflow`: the chief sends the input pipeline to the workers as a graph, so
every worker reads the file itself. Workers and ps only start their server; they are stopped when the chief is done.
"""

import posixpath

IMAGE_SIZE = 64


def main_fun(args, ctx):
    if ctx.job_name != "chief":
        _, server = ctx.start_cluster_server()
        server.join()
        return

    import tensorflow as tf

    strategy = tf.distribute.ParameterServerStrategy(tf.distribute.cluster_resolver.TFConfigClusterResolver())
    with strategy.scope():
        model = tf.keras.Sequential(
            [
                tf.keras.layers.Dense(128, activation="relu", input_shape=(IMAGE_SIZE,)),
                tf.keras.layers.Dense(10),
            ]
        )
        loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(tf.keras.optimizers.legacy.Adam(args.learning_rate), loss, metrics=["accuracy"])

    creator = tf.keras.utils.experimental.DatasetCreator(InputPipeline(ctx.data_path, args.batch_size))
    # There is no end of the data that all workers see together, so an epoch is a number of steps.
    model.fit(creator, epochs=ctx.num_epochs, steps_per_epoch=args.steps_per_epoch, verbose=2)

    images, labels = read_csv(tf, posixpath.join(posixpath.dirname(ctx.data_path), args.test_file))
    correct = model(images / 16).numpy().argmax(axis=1) == labels
    print(f"test accuracy {correct.mean():.4f} ({correct.sum()} of {len(labels)} images)", flush=True)


class InputPipeline:
    """Called once for every worker; what it returns is a graph that runs there."""

    def __init__(self, path, batch_size):
        self.path = path
        self.batch_size = batch_size

    def __call__(self, input_context):
        import tensorflow as tf

        lines = tf.data.TextLineDataset(self.path).skip(1)  # below the header
        # Every worker reads all rows, each in an order of its own.
        rows = lines.shuffle(2000, seed=input_context.input_pipeline_id).repeat()
        return rows.batch(self.batch_size).map(parse).prefetch(2)


def parse(lines):
    """From lines `label,p0,...,p63` to images [rows, 64] and labels [rows]."""
    import tensorflow as tf

    columns = tf.io.decode_csv(lines, [[0.0]] * (1 + IMAGE_SIZE))
    return tf.stack(columns[1:], axis=1) / 16, tf.cast(columns[0], tf.int64)


def read_csv(tf, path):
    """Images [rows, 64] and labels [rows] of a file with a header line."""
    import numpy as np

    with tf.io.gfile.GFile(path) as file:
        rows = np.loadtxt(file, delimiter=",", skiprows=1, dtype=np.float32, ndmin=2)
    return rows[:, 1:], rows[:, 0].astype(np.int64)
