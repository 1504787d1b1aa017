"""The model in a Python worker of Spark: loaded once, called with arrays."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tfos_core.saved_model.errors import ModelError, OutputCountError
from tfos_core.saved_model.location import ModelRef

__all__ = ("LoadedModel", "RejectedError", "load_model")

logger = logging.getLogger(__name__)
Array = npt.NDArray[Any]

#: Models of one worker; a pipeline may use two in turn. The oldest goes.
_MOST_MODELS = 2
_models: dict[ModelRef, LoadedModel] = {}
#: What is wrong with the model or the machine, not with a row.
_NOT_ABOUT_ROWS = (
    "AbortedError",
    "CancelledError",
    "DeadlineExceededError",
    "FailedPreconditionError",
    "PermissionDeniedError",
    "ResourceExhaustedError",
    "UnauthenticatedError",
    "UnavailableError",
)


class RejectedError(Exception):
    """The model raised for these rows; the text is its reason in one line."""


class LoadedModel:
    """A signature that can be called."""

    def __init__(self, ref: ModelRef, function: Any, owner: Any) -> None:
        self.ref = ref
        self._function = function
        # Variables live as long as the object that was loaded.
        self._owner = owner
        specs = function.structured_input_signature[1]
        self._casts = {name: spec.dtype for name, spec in specs.items() if spec.dtype.name == "bfloat16"}

    def call(self, arrays: Mapping[str, Array], rows: int, outputs: Sequence[str]) -> dict[str, Array]:
        """The outputs for a batch of rows.

        Raises:
            RejectedError: the model does not take these rows.
            ModelError: it can not be called at all.
            OutputCountError: an output has another number of rows.
        """
        import tensorflow as tf

        try:
            inputs = {name: tf.convert_to_tensor(array) for name, array in arrays.items()}
            for name, dtype in self._casts.items():
                inputs[name] = tf.cast(inputs[name], dtype)
            results = self._function(**inputs)
            found = {name: results[name].numpy() for name in outputs}
        except Exception as exc:
            if type(exc).__name__ in _NOT_ABOUT_ROWS:
                raise ModelError(f"the model {self.ref.shown} failed: {type(exc).__name__}: {_first_line(exc)}") from exc
            raise RejectedError(f"{type(exc).__name__}: {_first_line(exc)}") from exc
        for name, values in found.items():
            if values.ndim == 0 or len(values) != rows:
                shape = ", ".join(map(str, values.shape))
                count = len(values) if values.ndim else "no"
                raise OutputCountError(
                    f"{count} results for {rows} rows: the output {name!r} of the model {self.ref.shown} has the shape [{shape}]",
                    "An output has one entry per row in its first dimension; choose others with output_mapping.",
                )
            if values.dtype.name == "bfloat16":
                found[name] = values.astype(np.float32)
        return found


def load_model(ref: ModelRef, *, threads: int) -> LoadedModel:
    """The model, from the worker's cache when it was there before.

    Args:
        threads: of one operation; the cores that a Spark task has.

    Raises:
        ModelError: it can not be loaded.
    """
    if ref in _models:
        return _models[ref]
    tf = _import_tensorflow(threads)
    try:
        owner = tf.saved_model.load(str(ref.local_path()), tags=list(ref.tags))
        function = owner.signatures[ref.signature]
    except Exception as exc:
        raise ModelError(
            f"the model {ref.shown} can not be loaded: {type(exc).__name__}: {_first_line(exc)}",
            "Executors need the folder at the same place, and a TensorFlow that knows what is in it.",
        ) from exc
    while len(_models) >= _MOST_MODELS:
        _models.pop(next(iter(_models)))
    _models[ref] = LoadedModel(ref, function, owner)
    return _models[ref]


def _import_tensorflow(threads: int) -> Any:
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")
    try:
        import tensorflow as tf
    except ImportError as exc:
        raise ModelError(
            f"TensorFlow can not be imported by an executor's Python: {exc}",
            "Point PYSPARK_PYTHON at an environment that has it, or ship one with environment.pack.",
        ) from exc
    try:
        # Several workers share a host, each with a task's cores; TensorFlow would start as many threads as there are cores.
        tf.config.threading.set_intra_op_parallelism_threads(threads)
        tf.config.threading.set_inter_op_parallelism_threads(threads)
    except RuntimeError:
        logger.debug("this worker has used TensorFlow before; its threads stay as they are")
    return tf


def _first_line(exc: BaseException) -> str:
    lines = [line.strip() for line in str(exc).strip().splitlines() if line.strip()]
    kept = [line for line in lines if not line.startswith(("Detected at node", "File ", "Traceback", "[[{{node"))]
    return (kept or lines or [type(exc).__name__])[0][:500]
