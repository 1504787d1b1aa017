"""The digits from TFRecord files: the same program whether Spark feeds it or the nodes read their shares themselves."""

from digits import build_model


def main_fun(args, ctx):
    import tensorflow as tf

    tf.keras.utils.set_random_seed(ctx.worker_index + 1)
    strategy = tf.distribute.MultiWorkerMirroredStrategy() if ctx.num_workers > 1 else tf.distribute.get_strategy()
    with strategy.scope():
        model = build_model(tf, args.learning_rate)

    if ctx.input_mode == "spark":
        train = ctx.get_data_feed().as_dataset(args.batch_size)
    else:
        # What the spec says under `data`; every image is on exactly one node, and each pass mixes them anew.
        train = ctx.dataset(args.batch_size, shuffle=args.shuffle)
    callbacks = [tf.keras.callbacks.TensorBoard(ctx.log_dir)] if ctx.log_dir else []
    if getattr(args, "checkpoint_dir", None):
        callbacks.append(ctx.checkpoints(args.checkpoint_dir, model=model).callback())
    model.fit(train, epochs=ctx.num_epochs, verbose=2 if ctx.is_chief else 0, callbacks=callbacks)

    if ctx.is_chief:
        correct = count = 0
        for images, labels in ctx.dataset(256, path=args.test_data, shard=False):
            correct += int((model(images).numpy().argmax(axis=1) == labels.numpy()).sum())
            count += len(labels)
        print(f"test accuracy {correct / count:.4f} ({correct} of {count} images)", flush=True)
    ctx.export_saved_model(model, args.export_dir)
