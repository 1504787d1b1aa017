"""Models of every kind that people have, written by a process of its own: TensorFlow stays out of the tests' process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

__all__ = ("build",)

#: All of the first group compute x @ [[1], [2], [3]] + 1.
_PROGRAM = """
import sys
import numpy as np
import tensorflow as tf
import keras, tf_keras

out = sys.argv[1]
weights = [np.array([[1.0], [2.0], [3.0]], "float32"), np.array([1.0], "float32")]

model = keras.Sequential([keras.Input((3,), name="x"), keras.layers.Dense(1)])
model.set_weights(weights)
model.export(out + "/keras3", verbose=False)
model.save(out + "/keras3.keras")

old = tf_keras.Sequential([tf_keras.layers.Dense(1, input_shape=(3,), name="y")])
old.set_weights(weights)
old.export(out + "/tf_keras")
old.save(out + "/tf_keras_saved", save_format="tf")
old.save(out + "/tf_keras.keras")

v1 = tf.compat.v1
with v1.Graph().as_default(), v1.Session() as session:
    x = v1.placeholder(tf.float32, [None, 3], name="x")
    w = v1.get_variable("w", initializer=weights[0])
    y = tf.matmul(x, w) + weights[1]
    session.run(v1.global_variables_initializer())
    builder = v1.saved_model.builder.SavedModelBuilder(out + "/tf1")
    signature = v1.saved_model.signature_def_utils.predict_signature_def({"x": x}, {"y": y})
    builder.add_meta_graph_and_variables(session, ["serve"], {"serving_default": signature})
    builder.add_meta_graph(["serve", "gpu"], {"other": signature})
    builder.save()


def spec(shape, dtype=tf.float32, name=None):
    return tf.TensorSpec(shape, dtype, name=name)


class Module(tf.Module):
    def __init__(self):
        self.w = tf.Variable(weights[0])

    @tf.function(input_signature=[spec([None, 3], name="x")])
    def __call__(self, x):
        return {"y": x @ self.w + 1.0}

    @tf.function(input_signature=[spec([None], name="a"), spec([None, 1], tf.int32, name="b")])
    def scalars(self, a, b):
        whole = b[:, 0]
        return {"sum": a + tf.cast(whole, tf.float32), "big": tf.cast(a, tf.float64) * 2, "whole": whole, "odd": whole % 2 == 1}

    @tf.function(input_signature=[spec([None, 2, 2], name="m")])
    def matrices(self, m):
        return {"t": tf.transpose(m, [0, 2, 1]), "trace": tf.linalg.trace(m)}

    @tf.function(input_signature=[spec([None], tf.string, name="s")])
    def strings(self, s):
        return {"upper": tf.strings.upper(s), "length": tf.strings.length(s)}

    @tf.function(input_signature=[spec([None, None], name="v")])
    def sequences(self, v):
        return {"twice": v * 2, "n": tf.fill([tf.shape(v)[0]], tf.shape(v)[1])}

    @tf.function(input_signature=[spec([4], name="a")])
    def four(self, a):
        return {"rank": tf.argsort(tf.argsort(a))}

    @tf.function(input_signature=[spec([None], name="a")])
    def fussy(self, a):
        with tf.control_dependencies([tf.debugging.assert_less(a, 100.0, message="too large")]):
            return {"root": tf.sqrt(a)}

    @tf.function(input_signature=[spec([None], name="a")])
    def loses(self, a):
        return {"y": a[1:]}

    @tf.function(input_signature=[spec([None], name="a")])
    def total(self, a):
        return {"y": a, "sum": tf.reduce_sum(a)}

    @tf.function(input_signature=[spec([None], tf.uint8, name="a")])
    def pixels(self, a):
        return {"y": a, "huge": tf.bitcast(tf.cast(a, tf.int64) - 1, tf.uint64)}


module = Module()
names = ("scalars", "matrices", "strings", "sequences", "four", "fussy", "loses", "total", "pixels")
tf.saved_model.save(
    module, out + "/module", signatures={"serving_default": module.__call__} | {name: getattr(module, name) for name in names}
)
tf.saved_model.save(tf.Module(), out + "/nothing")


class Halves(tf.Module):
    @tf.function(input_signature=[spec([None], name="x")])
    def __call__(self, x):
        return {"half": x / 2}


halves = Halves()
tf.saved_model.save(halves, out + "/halves", signatures=halves.__call__)
"""


def build(folder: Path) -> Path:
    """Write all models below `folder`, and return it; takes about ten seconds."""
    folder.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, str(folder)], capture_output=True, text=True, timeout=180, check=False, cwd=folder
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return folder
