"""Tells digits with a program of its own on every node, for when a saved model alone is not enough."""


def main_fun(args, ctx):
    import numpy as np
    import tensorflow as tf

    model = tf.saved_model.load(ctx.absolute_path(args.export_dir).removeprefix("file://")).signatures["serving_default"]
    feed = ctx.get_data_feed(train_mode=False)
    while not feed.should_stop():
        rows = feed.next_batch(args.batch_size)  # never mixes partitions, so the last one of a partition may be short
        if not rows:
            continue
        images = np.array([image for image, label in rows], dtype=np.float32)
        probabilities = model(image=tf.constant(images))["output_0"].numpy()
        # Exactly one result for every row, in order. A dict becomes a row with these columns.
        feed.batch_results(
            [
                {"label": label, "digit": int(row.argmax()), "probability": float(row.max())}
                for (image, label), row in zip(rows, probabilities, strict=True)
            ]
        )
