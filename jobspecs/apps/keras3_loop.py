"""A digits classifier with a training loop of its own: Keras 3 under MultiWorkerMirroredStrategy.

`model.fit` of Keras 3 does not work with more than one node, so this program makes each step itself. Spark feeds the rows; every
node computes the gradients of its part of a batch, the nodes add them up, and all of them take the same step.
"""

import posixpath

IMAGE_SIZE = 64


def prepare(spark, df, args):
    """From columns label, p0 ... p63 to the two columns that the nodes get: image array<float>, label long."""
    from pyspark.sql import functions as f

    image = f.array(*[f.col(f"p{i}").cast("float") for i in range(IMAGE_SIZE)])
    return df.select(image.alias("image"), f.col("label").cast("long").alias("label")).repartition(args.partitions)


def main_fun(args, ctx):
    import keras
    import tensorflow as tf

    # The strategy has to exist before anything else of TensorFlow runs: it starts the node's server and finds the others.
    strategy = tf.distribute.MultiWorkerMirroredStrategy() if ctx.num_workers > 1 else tf.distribute.get_strategy()
    keras.utils.set_random_seed(1)
    with strategy.scope():
        model = keras.Sequential(
            [
                keras.Input((IMAGE_SIZE,), name="image"),
                keras.layers.Rescaling(1 / 16),
                keras.layers.Dense(128, activation="relu"),
                keras.layers.Dense(10, name="logits"),
            ]
        )
        optimizer = keras.optimizers.Adam(args.learning_rate)
        optimizer.build(model.trainable_variables)
    cross_entropy = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction=None)

    def step_of_one_node(images, labels):
        with tf.GradientTape() as tape:
            # The optimizer adds up the gradients of all nodes, so each divides by the batch of all. A node that has run out of
            # rows takes part with none.
            loss = tf.reduce_sum(cross_entropy(labels, model(images, training=True))) / args.batch_size
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    @tf.function(reduce_retracing=True)
    def step(images, labels):
        return strategy.reduce(tf.distribute.ReduceOp.SUM, strategy.run(step_of_one_node, args=(images, labels)), axis=None)

    # `batch_size` is the batch of all nodes together: TensorFlow splits what this node's feed yields.
    batches = strategy.experimental_distribute_dataset(ctx.get_data_feed().as_dataset(args.batch_size))
    for epoch in range(ctx.num_epochs):
        # One pass over the feed is one epoch. Nodes that have run out of rows go on with empty batches until all have.
        losses = [step(images, labels) for images, labels in batches]
        if ctx.is_chief:
            print(f"epoch {epoch + 1}: {len(losses)} steps, loss {sum(map(float, losses)) / len(losses):.4f}", flush=True)

    if ctx.is_chief:
        images, labels = read_csv(tf, posixpath.join(posixpath.dirname(ctx.data_path), args.test_file))
        correct = model(images).numpy().argmax(axis=1) == labels
        print(f"test accuracy {correct.mean():.4f} ({correct.sum()} of {len(labels)} images)", flush=True)
    ctx.export_saved_model(model, args.export_dir)


def read_csv(tf, path):
    """Images [rows, 64] and labels [rows] of a file with a header line."""
    import numpy as np

    with tf.io.gfile.GFile(path) as file:
        rows = np.loadtxt(file, delimiter=",", skiprows=1, dtype=np.float32, ndmin=2)
    return rows[:, 1:], rows[:, 0].astype(np.int64)
