"""Tries one learning rate per instance: independent trainings that share nothing but the program.

What `main_fun` returns is the result of the instance; it has to be JSON (numbers, strings, lists, dictionaries).
"""


def main_fun(args, ctx):
    import numpy as np
    import tensorflow as tf

    tf.keras.utils.set_random_seed(1)
    learning_rate = args.learning_rates[ctx.task_index % len(args.learning_rates)]
    images, labels = read_csv(np, ctx.absolute_path(args.train_file).removeprefix("file://"))
    test_images, test_labels = read_csv(np, ctx.absolute_path(args.test_file).removeprefix("file://"))

    model = tf.keras.Sequential([tf.keras.Input((64,)), tf.keras.layers.Dense(32, activation="relu"), tf.keras.layers.Dense(10)])
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(tf.keras.optimizers.Adam(learning_rate), loss, metrics=["accuracy"])
    # Summaries of all instances are in the record of the run, where TensorBoard shows them beside each other.
    callbacks = [tf.keras.callbacks.TensorBoard(ctx.log_dir)] if ctx.log_dir else []
    model.fit(images, labels, batch_size=32, epochs=args.epochs, verbose=0, callbacks=callbacks)
    accuracy = float(model.evaluate(test_images, test_labels, verbose=0)[1])
    print(f"instance {ctx.task_index} of {ctx.num_workers}: learning rate {learning_rate}, accuracy {accuracy:.4f}", flush=True)
    return {"learning_rate": learning_rate, "accuracy": round(accuracy, 4)}


def read_csv(np, path):
    """Images [rows, 64] scaled to 0..1 and labels [rows] of a file with a header line."""
    rows = np.loadtxt(path, delimiter=",", skiprows=1, dtype=np.float32, ndmin=2)
    return rows[:, 1:] / 16, rows[:, 0].astype(np.int64)
