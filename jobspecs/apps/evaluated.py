"""A digits classifier with a side evaluator: one node trains and leaves checkpoints, another one judges each of them.

The evaluator takes no part in the training and slows it down by nothing. The two meet in `args.checkpoints`: a folder that both
hosts see. After the training the evaluator may go on for `grace_secs` of the spec, which is for the last checkpoint.
"""

import posixpath

IMAGE_SIZE = 64


def main_fun(args, ctx):
    import tensorflow as tf

    model = build_model(tf, args.learning_rate)
    epoch = tf.Variable(0, dtype=tf.int64)
    checkpoint = tf.train.Checkpoint(model=model, epoch=epoch)
    # Every run has a folder of its own, so that the evaluator never takes up what an earlier run has left.
    folder = posixpath.join(ctx.absolute_path(args.checkpoints), ctx.run_id)
    if ctx.job_name == "evaluator":
        evaluate(tf, args, ctx, model, checkpoint, epoch, folder)
    else:
        train(tf, args, ctx, model, checkpoint, epoch, folder)


def train(tf, args, ctx, model, checkpoint, epoch, folder):
    """`fit`, and a checkpoint after every epoch."""
    manager = tf.train.CheckpointManager(checkpoint, folder, max_to_keep=None)

    def save(number, logs):
        epoch.assign(number + 1)
        manager.save()

    images, labels = read_csv(tf, ctx.data_path)
    callback = tf.keras.callbacks.LambdaCallback(on_epoch_end=save)
    model.fit(images, labels, batch_size=args.batch_size, epochs=ctx.num_epochs, verbose=2, callbacks=[callback])


def evaluate(tf, args, ctx, model, checkpoint, epoch, folder):
    """Restore each new checkpoint and say how good it is; the one of the last epoch ends it."""
    images, labels = read_csv(tf, posixpath.join(posixpath.dirname(ctx.data_path), args.test_file))
    for path in tf.train.checkpoints_iterator(folder, min_interval_secs=0, timeout=args.patience):
        checkpoint.restore(path).expect_partial()
        correct = model(images).numpy().argmax(axis=1) == labels
        print(f"epoch {epoch.numpy()}: test accuracy {correct.mean():.4f}", flush=True)
        if epoch.numpy() == ctx.num_epochs:
            return
    raise TimeoutError(f"no new checkpoint in {folder} for {args.patience} s")


def build_model(tf, learning_rate):
    """Pixels from 0 to 16 in, ten probabilities out."""
    layers = tf.keras.layers
    image = tf.keras.Input((IMAGE_SIZE,), name="image")
    hidden = layers.Dense(128, activation="relu")(layers.Rescaling(1 / 16)(image))
    model = tf.keras.Model(image, layers.Dense(10, activation="softmax", name="probabilities")(hidden))
    model.compile(tf.keras.optimizers.Adam(learning_rate), "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


def read_csv(tf, path):
    """Images [rows, 64] and labels [rows] of a file with a header line."""
    import numpy as np

    with tf.io.gfile.GFile(path) as file:
        rows = np.loadtxt(file, delimiter=",", skiprows=1, dtype=np.float32, ndmin=2)
    return rows[:, 1:], rows[:, 0].astype(np.int64)
