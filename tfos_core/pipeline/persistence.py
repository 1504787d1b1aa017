"""Saving and loading stages as Spark ML does: one line of JSON on whatever file system Spark writes to.

Functions are pickled with Spark's cloudpickle: those of modules by their name, those of a notebook or `__main__` with their code.
Arguments are JSON where JSON keeps them as they are. Importing this module imports pyspark.
"""

from __future__ import annotations

import base64
import importlib
import pickle
import platform
from collections.abc import Mapping
from typing import Any

from pyspark import cloudpickle
from pyspark.ml.util import DefaultParamsReader, DefaultParamsWriter, MLReader, MLWriter

from tfos_core.errors import ConfigError
from tfos_core.pipeline.namespace import Namespace

__all__ = ("StageReader", "StageWriter", "pack", "pack_args", "unpack", "unpack_args")

#: The key of what is ours in the metadata that Spark ML writes.
_KEY = "tfos"


class StageWriter(MLWriter):  # type: ignore[misc]
    """Writes the parameters of a stage and what its `_content()` returns."""

    def __init__(self, stage: Any) -> None:
        super().__init__()
        self._stage = stage

    def saveImpl(self, path: str) -> None:  # noqa: N802 - Spark's
        """Called by `save`, which has removed an older one where that was asked for."""
        DefaultParamsWriter.saveMetadata(self._stage, path, self.sc, extraMetadata={_KEY: self._stage._content()})


class StageReader(MLReader):  # type: ignore[misc]
    """Reads what `StageWriter` wrote; `cls` makes the stage with `_from_content`."""

    def __init__(self, cls: Any) -> None:
        super().__init__()
        self._cls = cls

    def load(self, path: str) -> Any:
        """The stage, with the uid that it had.

        Raises:
            ConfigError: the folder holds another kind of stage, or its function can not be loaded here.
        """
        metadata = DefaultParamsReader.loadMetadata(path, self.sc)
        cls = _class_named(metadata["class"])
        if _KEY not in metadata or not issubclass(cls, self._cls):
            raise ConfigError(
                f"{path} holds a {metadata['class']}, not a {self._cls.__name__}",
                f"Load it with {cls.__name__}.load.",
            )
        try:
            stage = cls._from_content(metadata[_KEY])
        except ConfigError as exc:
            raise ConfigError(f"{path} can not be loaded: {exc.message}", exc.hint) from exc
        stage._resetUid(metadata["uid"])
        DefaultParamsReader.getAndSetParams(stage, metadata)
        return stage


def pack(value: Any, what: str) -> dict[str, str]:
    """A value for the metadata, pickled.

    Raises:
        ConfigError: it can not be pickled; `what` names it.
    """
    try:
        data = cloudpickle.dumps(value)
    except Exception as exc:
        raise ConfigError(
            f"{what} can not be saved: {type(exc).__name__}: {exc}",
            "Create what can not be pickled (sessions, locks, open files) inside the function.",
        ) from exc
    return {"pickle": base64.b64encode(data).decode(), "python": platform.python_version()}


def unpack(packed: Mapping[str, str]) -> Any:
    """What `pack` was given.

    Raises:
        ConfigError: a module is missing, or another Python wrote it.
    """
    try:
        return pickle.loads(base64.b64decode(packed["pickle"]))
    except Exception as exc:
        here = platform.python_version()
        raise ConfigError(
            f"what it holds can not be unpickled: {type(exc).__name__}: {exc}",
            f"Make the module of its function importable; it was saved with Python {packed['python']}, this is {here}.",
        ) from exc


def pack_args(args: Namespace) -> dict[str, Any]:
    """Arguments for the metadata."""
    content: Any = vars(args)
    return {"json": content} if _is_json(content) else pack(content, "an argument in tf_args")


def unpack_args(packed: Mapping[str, Any]) -> Namespace:
    """What `pack_args` was given."""
    return Namespace(packed["json"] if "json" in packed else unpack(packed))


def _is_json(value: Any) -> bool:
    """Whether a value comes back from JSON as it was: tuples would become lists, numbers of NumPy are refused."""
    if type(value) is dict:
        return all(type(key) is str and _is_json(item) for key, item in value.items())
    if type(value) is list:
        return all(_is_json(item) for item in value)
    return value is None or type(value) in (str, int, float, bool)


def _class_named(name: str) -> Any:
    module, _, attribute = name.rpartition(".")
    try:
        return getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as exc:
        raise ConfigError(f"the class {name} is not there: {exc}", "Make its module importable before loading.") from exc
