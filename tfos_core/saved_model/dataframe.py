"""A DataFrame with what a model says about every row."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tfos_core.column_names import with_plain_names
from tfos_core.errors import ConfigError
from tfos_core.inference.report import Reporter
from tfos_core.saved_model.binding import Binding, bind
from tfos_core.saved_model.location import ModelFiles, ModelRef, locate
from tfos_core.saved_model.runtime import graph_bytes
from tfos_core.saved_model.settings import InferenceSettings
from tfos_core.saved_model.signature import Signature, choose_signature
from tfos_core.saved_model.task import BAD_COLUMN, InferTask, OnBadRow, output_schema
from tfos_core.saved_model.wire import MalformedModelError, parse_saved_model

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ("PreparedInference", "infer_dataframe", "prepare_inference")


def infer_dataframe(df: DataFrame, settings: InferenceSettings) -> DataFrame:
    """A lazy DataFrame with one row per row of `df`: the kept columns, then the outputs in the order of their tensors' names.

    The model is looked at now: its signature gives the columns their types. It runs when the DataFrame is used.

    Raises:
        ConfigError: the model, its signature or a column does not exist, or types do not go together.
        ModelError: a `.keras` file can not be loaded.
    """
    if settings.bad_rows is not None:
        raise ConfigError(
            "bad_rows is for 'tfos infer', which writes them", "Leave it out: a row that can not be computed fails the query."
        )
    return prepare_inference(df, settings).dataframe()


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedInference:
    """Data and a model that go together."""

    data: Any
    columns: Mapping[str, Any]
    model: ModelRef
    binding: Binding
    batch_size: int

    def dataframe(
        self,
        on_bad_row: OnBadRow = OnBadRow.RAISE,
        *,
        reporter: Reporter | None = None,
        gpus: int | None = None,
    ) -> Any:
        """The lazy result; with `OnBadRow.KEEP` it has the column `tfos_bad`, null for a good row."""
        needed = tuple(self.columns) if on_bad_row is OnBadRow.KEEP else self.binding.columns
        fields = {name: self.columns[name] for name in needed}
        schema = output_schema(self.binding, fields, on_bad_row)
        selected, names = with_plain_names(self.data.select(*(_quoted(name) for name in needed)))
        task = InferTask(
            names=names,
            model=self.model,
            binding=self.binding,
            batch_size=self.batch_size,
            schema=schema,
            on_bad_row=on_bad_row,
            reporter=reporter or Reporter(),
            gpus=gpus,
        )
        return selected.mapInArrow(task.__call__, self._spark_schema(needed, on_bad_row))

    def _spark_schema(self, needed: Sequence[str], on_bad_row: OnBadRow) -> Any:
        from pyspark.sql.pandas.types import from_arrow_type
        from pyspark.sql.types import StringType, StructField, StructType

        own = self.data.schema
        fields = [own[name] for name in self.binding.keep]
        fields += [StructField(one.column, from_arrow_type(one.type)) for one in self.binding.outputs]
        if on_bad_row is OnBadRow.KEEP:
            row = StructType([StructField(name, own[name].dataType) for name in needed])
            fields.append(StructField(BAD_COLUMN, StructType([StructField("reason", StringType()), StructField("row", row)])))
        return StructType(fields)


def prepare_inference(df: DataFrame, settings: InferenceSettings) -> PreparedInference:
    """Find the model and bring its signature and the columns together; runs no model, but loads a `.keras` file once.

    Raises:
        ConfigError, ModelError: as `infer_dataframe`.
    """
    from pyspark.sql import DataFrame

    if not isinstance(df, DataFrame):
        raise ConfigError(
            f"inference with a model takes a DataFrame, not {type(df).__module__}.{type(df).__qualname__}",
            "Name the columns: spark.createDataFrame(rdd, ['a', 'b']).",
        )
    data = _without_vectors(df)
    needed = None if settings.bad_rows is not None else {*settings.keep, *settings.input_mapping}
    fields = _arrow_fields(data, needed)
    files = locate(df.sparkSession.sparkContext, settings.export_dir)
    signature = _signature(df, files, settings)
    binding = bind({name: field.type for name, field in fields.items()}, signature, settings)
    model = ModelRef(files=files, tags=tuple(sorted(settings.tags)), signature=settings.signature_def_key)
    return PreparedInference(data=data, columns=fields, model=model, binding=binding, batch_size=settings.batch_size)


def _signature(df: DataFrame, files: ModelFiles, settings: InferenceSettings) -> Signature:
    data = files.graph()
    if data is None:
        data = bytes(df.sparkSession.sparkContext.parallelize([0], 1).map(_ReadGraph(files)).first())
    try:
        graphs = parse_saved_model(data)
    except MalformedModelError as exc:
        raise ConfigError(f"{settings.export_dir} is no SavedModel: {exc}", "Export it again.") from exc
    return choose_signature(graphs, tags=settings.tags, key=settings.signature_def_key, where=settings.export_dir)


@dataclass(frozen=True, slots=True)
class _ReadGraph:
    files: ModelFiles

    def __call__(self, _: Any) -> bytes:
        return graph_bytes(self.files)


def _without_vectors(df: DataFrame) -> DataFrame:
    """ML vectors as arrays of numbers, which is what they hold."""
    from pyspark.sql.types import UserDefinedType

    vectors = [
        field.name
        for field in df.schema.fields
        if isinstance(field.dataType, UserDefinedType) and field.dataType.typeName() in ("vector", "vectorudt")
    ]
    if not vectors:
        return df
    from pyspark.ml.functions import vector_to_array

    return df.withColumns({name: vector_to_array(df[_quoted(name)]) for name in vectors})


def _arrow_fields(df: DataFrame, needed: set[str] | None) -> dict[str, Any]:
    """Arrow fields of columns as Spark gives them to tasks; a column that is not needed may have a type that Arrow lacks.

    Args:
        needed: None for all columns.

    Raises:
        ConfigError: a type has no counterpart in Arrow.
    """
    import pyarrow as pa
    from pyspark.errors import PySparkException
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructType, UserDefinedType

    # Before 4.2 there was no such argument, and timestamps were UTC anyway.
    timezone = {"timezone": "UTC"} if "timezone" in inspect.signature(to_arrow_schema).parameters else {}
    found = {}
    for field in df.schema.fields:
        if field.name == BAD_COLUMN:
            raise ConfigError(f"the data has a column {BAD_COLUMN!r}, which is a name of tfos", "Rename it in data.transform.")
        converted = None
        if not isinstance(field.dataType, UserDefinedType):
            with contextlib.suppress(PySparkException):
                converted = to_arrow_schema(StructType([field]), **timezone).field(0)
        if converted is None and (needed is None or field.name in needed):
            raise ConfigError(
                f"column {field.name!r} ({field.dataType.simpleString()}) has no form that executors' Python can read",
                "Cast it, or leave it out with data.columns.",
            )
        found[field.name] = converted or pa.field(field.name, pa.null())
    return found


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"
