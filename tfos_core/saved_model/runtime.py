"""The model in a Python worker of Spark: loaded once, called with arrays."""

from __future__ import annotations

import json
import logging
import os
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tfos_core.saved_model.errors import ModelError, OutputCountError, RejectedError
from tfos_core.saved_model.location import ModelFiles, ModelRef

__all__ = ("LoadedModel", "graph_bytes", "load_model")

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


class LoadedModel:
    """A signature that can be called."""

    def __init__(self, shown: str, function: Any, owner: Any, *, fixed_rows: int | None = None) -> None:
        self.shown = shown
        self._function = function
        # Variables live as long as the object that was loaded.
        self._owner = owner
        self._fixed_rows = fixed_rows
        self._casts = {
            name: spec.dtype for name, spec in function.structured_input_signature[1].items() if spec.dtype.name == "bfloat16"
        }

    def call(self, arrays: Mapping[str, Array], rows: int, outputs: Sequence[str]) -> dict[str, Array]:
        """The outputs for a batch of rows; a model of a fixed number of rows gets the last one again until it has them.

        Raises:
            RejectedError: the model does not take these rows.
            ModelError: it can not be called at all.
            OutputCountError: an output has another number of rows.
        """
        asked = rows if self._fixed_rows is None else self._fixed_rows
        if asked > rows:
            arrays = {name: np.concatenate([array, np.repeat(array[-1:], asked - rows, axis=0)]) for name, array in arrays.items()}
        found = self._results(arrays, outputs)
        for name, values in found.items():
            if values.ndim == 0 or len(values) != asked:
                raise self._wrong_count(name, values, rows)
        return {name: _plain(values[:rows] if asked > rows else values) for name, values in found.items()}

    def _results(self, arrays: Mapping[str, Array], outputs: Sequence[str]) -> dict[str, Array]:
        import tensorflow as tf

        try:
            inputs = {name: tf.convert_to_tensor(array) for name, array in arrays.items()}
            for name, dtype in self._casts.items():
                inputs[name] = tf.cast(inputs[name], dtype)
            results = self._function(**inputs)
            return {name: results[name].numpy() for name in outputs}
        except Exception as exc:
            if type(exc).__name__ in _NOT_ABOUT_ROWS:
                raise ModelError(f"the model {self.shown} failed: {type(exc).__name__}: {_first_line(exc)}") from exc
            raise RejectedError(f"the model rejects it: {type(exc).__name__}: {_first_line(exc)}") from exc

    def _wrong_count(self, name: str, values: Array, rows: int) -> OutputCountError:
        shape = ", ".join(map(str, values.shape))
        count = len(values) if values.ndim else 1
        return OutputCountError(
            f"{count} results for {rows} rows: the output {name!r} of the model {self.shown} has the shape [{shape}]",
            "Every output has one entry per row in its first dimension; choose others with output_mapping.",
        )


def load_model(ref: ModelRef, *, threads: int, fixed_rows: int | None = None) -> LoadedModel:
    """The model, from the worker's cache when it was there before.

    Args:
        threads: of one operation; the cores that a Spark task has.
        fixed_rows: the number of rows that every call has to have.

    Raises:
        ModelError: it can not be loaded.
    """
    if ref in _models:
        return _models[ref]
    files = ref.files
    tf = _import_tensorflow(threads)
    try:
        with _SavedModelFolder(files) as folder:
            owner = tf.saved_model.load(folder, tags=list(ref.tags))
        function = owner.signatures[ref.signature]
    except Exception as exc:
        raise _load_error(files, exc) from exc
    while len(_models) >= _MOST_MODELS:
        _models.pop(next(iter(_models)))
    _models[ref] = LoadedModel(files.shown, function, owner, fixed_rows=fixed_rows)
    return _models[ref]


def graph_bytes(files: ModelFiles) -> bytes:
    """`saved_model.pb` of a model that the driver can not read without TensorFlow; runs on an executor.

    Raises:
        ModelError: it can not be loaded.
    """
    _import_tensorflow(1)
    from tensorflow.python.saved_model import loader_impl  # the public API has no way to the text form

    try:
        with _SavedModelFolder(files) as folder:
            return bytes(loader_impl.parse_saved_model(folder).SerializeToString())
    except Exception as exc:
        raise _load_error(files, exc) from exc


class _SavedModelFolder:
    """While open, the folder of a SavedModel: the model's own, or what a `.keras` file exports."""

    def __init__(self, files: ModelFiles) -> None:
        self._files = files
        self._temporary: tempfile.TemporaryDirectory[str] | None = None

    def __enter__(self) -> str:
        path = self._files.local_path()
        if not self._files.is_keras:
            return str(path)
        self._temporary = tempfile.TemporaryDirectory(prefix="tfos-keras-")
        folder = str(Path(self._temporary.name) / "export")
        _export_keras(path, folder)
        return folder

    def __exit__(self, *exc_info: object) -> None:
        if self._temporary is not None:
            self._temporary.cleanup()


def _export_keras(path: Path, folder: str) -> None:
    """Both Keras write `.keras`; the file says which of them did."""
    with zipfile.ZipFile(path) as archive:
        version = str(json.loads(archive.read("metadata.json")).get("keras_version", "3"))
    if version.startswith("2."):
        import tf_keras

        tf_keras.models.load_model(path, compile=False).export(folder)
    else:
        os.environ.setdefault("KERAS_BACKEND", "tensorflow")
        import keras

        keras.models.load_model(path, compile=False).export(folder, verbose=False)


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


def _plain(values: Array) -> Array:
    return values.astype(np.float32) if values.dtype.name == "bfloat16" else values


def _load_error(files: ModelFiles, exc: Exception) -> ModelError:
    return ModelError(
        f"the model {files.shown} can not be loaded: {type(exc).__name__}: {_first_line(exc)}",
        "The executors' TensorFlow and Keras have to know everything that is in it; custom layers and operations have to be there.",
    )


def _first_line(exc: BaseException) -> str:
    lines = [line.strip() for line in str(exc).strip().splitlines() if line.strip()]
    kept = [line for line in lines if not line.startswith(("Graph execution error", "Detected at node", "File ", "Traceback", "<"))]
    return (kept or lines or [type(exc).__name__])[0][:500]
