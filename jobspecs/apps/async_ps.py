"""A digits classifier trained asynchronously: parameter servers hold the weights, and every worker has a graph of its own.

Spark feeds the rows. A worker pulls the weights, computes the gradients of its batch, pushes them, and waits for nobody. This is
the way of `tf.compat.v1`; TensorFlow keeps it, and it is the one way to feed a cluster with parameter servers from Spark.
"""

import posixpath
import time

IMAGE_SIZE = 64


def prepare(spark, df, args):
    """From columns label, p0 ... p63 to the two columns that the nodes get: image array<float>, label long."""
    from pyspark.sql import functions as f

    image = f.array(*[f.col(f"p{i}").cast("float") for i in range(IMAGE_SIZE)])
    return df.select(image.alias("image"), f.col("label").cast("long").alias("label")).repartition(args.partitions)


def main_fun(args, ctx):
    import tensorflow as tf

    cluster, server = ctx.start_cluster_server()
    if ctx.job_name == "ps":
        server.join()  # until the workers are done
        return

    v1 = tf.compat.v1
    me = f"/job:{ctx.job_name}/task:{ctx.task_index}"
    with tf.Graph().as_default():
        # The feed belongs to this process, so its part of the graph stays here; the weights go to the parameter servers.
        with v1.device(f"{me}/device:CPU:0"):
            dataset = ctx.get_data_feed().as_dataset(args.batch_size, all_epochs=True)
            rows = v1.data.make_initializable_iterator(dataset)
            images, labels = rows.get_next()
        with v1.device(v1.train.replica_device_setter(cluster=cluster, worker_device=me)):
            images = v1.placeholder_with_default(images, [None, IMAGE_SIZE], name="images")
            logits = build_model(v1, images)
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))
            step = v1.train.get_or_create_global_step()
            train = v1.train.AdamOptimizer(args.learning_rate).minimize(loss, global_step=step)

        # A session reaches the parameter servers and itself, so that a worker that ends early stops nobody.
        config = v1.ConfigProto(device_filters=["/job:ps", me])
        if not ctx.is_chief:
            uninitialized = v1.report_uninitialized_variables(v1.global_variables())
            # The chief initialises the weights. A monitored session waits for that too, but looks every 30 seconds only.
            with v1.Session(server.target, config=config) as session:
                while session.run(uninitialized).size:
                    time.sleep(0.5)
        scaffold = v1.train.Scaffold(local_init_op=tf.group(v1.local_variables_initializer(), rows.initializer))
        with v1.train.MonitoredTrainingSession(server.target, is_chief=ctx.is_chief, scaffold=scaffold, config=config) as session:
            done = 0
            while not session.should_stop():  # the end of the feed ends it
                loss_now, step_now, _ = session.run([loss, step, train])
                done += 1
                if done % args.print_every == 0:
                    print(f"step {done} here, {step_now} in all, loss {loss_now:.4f}", flush=True)
        print(f"{ctx.job_name}:{ctx.task_index} is done after {done} steps, loss {loss_now:.4f}", flush=True)

        if ctx.is_chief:
            images_test, labels_test = read_csv(tf, posixpath.join(posixpath.dirname(ctx.data_path), args.test_file))
            with v1.Session(server.target, config=config) as session:
                correct = session.run(logits, {images: images_test}).argmax(axis=1) == labels_test
            print(f"test accuracy {correct.mean():.4f} ({correct.sum()} of {len(labels_test)} images)", flush=True)


def build_model(v1, images):
    """Pixels from 0 to 16 in, ten logits out."""
    hidden = v1.get_variable("hidden", [IMAGE_SIZE, 64])
    hidden_bias = v1.get_variable("hidden_bias", [64], initializer=v1.zeros_initializer())
    output = v1.get_variable("output", [64, 10])
    output_bias = v1.get_variable("output_bias", [10], initializer=v1.zeros_initializer())
    return v1.nn.relu(images / 16 @ hidden + hidden_bias) @ output + output_bias


def read_csv(tf, path):
    """Images [rows, 64] and labels [rows] of a file with a header line."""
    import numpy as np

    with tf.io.gfile.GFile(path) as file:
        rows = np.loadtxt(file, delimiter=",", skiprows=1, dtype=np.float32, ndmin=2)
    return rows[:, 1:], rows[:, 0].astype(np.int64)
