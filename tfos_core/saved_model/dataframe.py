"""A DataFrame with what a model says about every row."""

from __future__ import annotations

import hashlib
import inspect
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfos_core.errors import ConfigError
from tfos_core.paths import local_path
from tfos_core.saved_model.binding import Binding, bind
from tfos_core.saved_model.location import ModelRef
from tfos_core.saved_model.settings import InferenceSettings
from tfos_core.saved_model.signature import choose_signature
from tfos_core.saved_model.task import InferTask
from tfos_core.saved_model.wire import MalformedModelError, parse_saved_model

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ("infer_dataframe",)


def infer_dataframe(df: DataFrame, settings: InferenceSettings) -> DataFrame:
    """A lazy DataFrame with one row per row of `df`: the kept columns, then the outputs in the order of their tensors' names.

    Raises:
        ConfigError: the model, its signature or a column does not exist, or types do not go together.
    """
    folder = Path(local_path(settings.export_dir))
    try:
        data = (folder / "saved_model.pb").read_bytes()
        graphs = parse_saved_model(data)
    except (OSError, MalformedModelError) as exc:
        raise ConfigError(f"there is no SavedModel at {settings.export_dir}: {exc}", "Check export_dir.") from exc
    signature = choose_signature(graphs, tags=settings.tags, key=settings.signature_def_key, where=settings.export_dir)
    binding = bind(_column_types(df), signature, settings)
    ref = ModelRef(
        shown=settings.export_dir,
        path=str(folder),
        fingerprint=_fingerprint(folder, data),
        tags=tuple(sorted(settings.tags)),
        signature=settings.signature_def_key,
    )
    task = InferTask(model=ref, binding=binding, batch_size=settings.batch_size)
    selected = df.select(*(_quoted(name) for name in binding.columns))
    return selected.mapInArrow(task.__call__, _output_schema(df, binding))


def _fingerprint(folder: Path, graph: bytes) -> str:
    """Of the graph, and of the sizes and times of all files: training again changes the weights and leaves the graph as it is."""
    files = sorted((str(path.relative_to(folder)), path.stat()) for path in folder.rglob("*") if path.is_file())
    return hashlib.sha256(graph + repr([(name, stat.st_size, stat.st_mtime_ns) for name, stat in files]).encode()).hexdigest()


def _column_types(df: DataFrame) -> dict[str, Any]:
    from pyspark.sql.pandas.types import to_arrow_schema

    timezone = {"timezone": "UTC"} if "timezone" in inspect.signature(to_arrow_schema).parameters else {}
    schema = to_arrow_schema(df.schema, **timezone)
    return dict(zip(schema.names, schema.types, strict=True))


def _output_schema(df: DataFrame, binding: Binding) -> Any:
    from pyspark.sql.pandas.types import from_arrow_type
    from pyspark.sql.types import StructField, StructType

    kept = [df.schema[name] for name in binding.keep]
    return StructType([*kept, *(StructField(one.column, from_arrow_type(one.type)) for one in binding.outputs)])


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"
