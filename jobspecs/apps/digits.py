"""A digits classifier: one program for both input modes.

`input_mode: spark`        Spark reads the training images and feeds them to the nodes.
`input_mode: tensorflow`   every node reads its own share of the training file.

`main_fun` runs once on every node, `prepare` on the Spark driver. Everything in the spec's `args` arrives as `args`.
"""

import posixpath

IMAGE_SIZE = 64


def prepare(spark, df, args):
    """From columns label, p0 ... p63 to the two columns that the nodes get: image array<float>, label long."""
    from pyspark.sql import functions as f

    image = f.array(*[f.col(f"p{i}").cast("float") for i in range(IMAGE_SIZE)])
    # A small file is one partition, and one partition feeds one node. Several for every node keep all of them busy to the end.
    return df.select(image.alias("image"), f.col("label").cast("long").alias("label")).repartition(args.partitions)


def main_fun(args, ctx):
    import tensorflow as tf

    tf.keras.utils.set_random_seed(ctx.worker_index + 1)
    # The strategy has to exist before anything else of TensorFlow runs: it starts the node's server and finds the others.
    strategy = tf.distribute.MultiWorkerMirroredStrategy() if ctx.num_workers > 1 else tf.distribute.get_strategy()
    with strategy.scope():
        model = build_model(tf, args.learning_rate)

    train = fed_dataset(args, ctx) if ctx.input_mode == "spark" else own_share(tf, args, ctx)
    # The node's own folder: TensorBoard shows it when the spec asks for one, and its files are copied into the run record.
    callbacks = [tf.keras.callbacks.TensorBoard(ctx.log_dir)] if ctx.log_dir else []
    # A job that is started again (`restart` in the spec) goes on after the last epoch that was saved; otherwise 0 are done.
    done = 0
    if getattr(args, "checkpoint_dir", None):
        checkpoints = ctx.checkpoints(args.checkpoint_dir, model=model)
        done = checkpoints.restore()
        callbacks.append(checkpoints.callback())
    model.fit(train, initial_epoch=done, epochs=ctx.num_epochs, verbose=2 if ctx.is_chief else 0, callbacks=callbacks)

    if ctx.is_chief:
        images, labels = read_csv(tf, posixpath.join(posixpath.dirname(ctx.data_path), args.test_file))
        correct = model(images).numpy().argmax(axis=1) == labels
        print(f"test accuracy {correct.mean():.4f} ({correct.sum()} of {len(labels)} images)", flush=True)
    ctx.export_saved_model(model, args.export_dir)


def build_model(tf, learning_rate):
    """Pixels from 0 to 16 in, ten probabilities out."""
    layers = tf.keras.layers
    image = tf.keras.Input((IMAGE_SIZE,), name="image")
    hidden = layers.Reshape((8, 8, 1))(layers.Rescaling(1 / 16)(image))
    hidden = layers.MaxPooling2D()(layers.Conv2D(32, 3, padding="same", activation="relu")(hidden))
    hidden = layers.Dense(64, activation="relu")(layers.Dropout(0.4)(layers.Flatten()(hidden)))
    model = tf.keras.Model(image, layers.Dense(10, activation="softmax", name="probabilities")(hidden))
    model.compile(tf.keras.optimizers.Adam(learning_rate), "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


def fed_dataset(args, ctx):
    """What Spark sends to this node. One pass over it is one epoch, and `batch_size` is the batch of all nodes together."""
    return ctx.get_data_feed().as_dataset(args.batch_size)


def own_share(tf, args, ctx):
    """Every num_workers-th row of the training file, from this node's place on."""
    images, labels = read_csv(tf, ctx.data_path)
    share = slice(ctx.worker_index, None, ctx.num_workers)
    dataset = tf.data.Dataset.from_tensor_slices((images[share], labels[share])).shuffle(len(labels), seed=1).batch(args.batch_size)
    # TensorFlow splits each batch among the nodes, so a pass takes more steps than there are batches. With a known number of
    # batches Keras would stop at that number, in the middle; `take_while` hides it, and Keras goes on until every node has run out.
    dataset = dataset.take_while(lambda image, label: True)
    # This node has read what it should see: TensorFlow must not take only a part of that.
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    return dataset.with_options(options)


def read_csv(tf, path):
    """Images [rows, 64] and labels [rows] of a file with a header line."""
    import numpy as np

    with tf.io.gfile.GFile(path) as file:
        rows = np.loadtxt(file, delimiter=",", skiprows=1, dtype=np.float32, ndmin=2)
    return rows[:, 1:], rows[:, 0].astype(np.int64)
