"""Which columns go into which inputs of a signature, and which outputs become which columns; pure, on the driver.

Everything that can be known from types is refused here, before any model runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tfos_core.errors import ConfigError
from tfos_core.saved_model.settings import InferenceSettings
from tfos_core.saved_model.signature import Signature, TensorSpec, quoted
from tfos_core.saved_model.types import can_hold, column_type

__all__ = ("Binding", "InputBinding", "OutputBinding", "bind")


@dataclass(frozen=True, slots=True, kw_only=True)
class InputBinding:
    """An input of the signature and the columns that it is made of."""

    spec: TensorSpec
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputBinding:
    """An output of the signature, its column, and the column's Arrow type."""

    spec: TensorSpec
    column: str
    type: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Binding:
    """A model's call. `fixed_rows` is the number of rows that a call has to have, None where any number will do."""

    inputs: tuple[InputBinding, ...]
    outputs: tuple[OutputBinding, ...]
    keep: tuple[str, ...]
    fixed_rows: int | None = field(default=None)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that are needed, each once."""
        return tuple(dict.fromkeys([*self.keep, *(name for one in self.inputs for name in one.columns)]))


def bind(schema: Mapping[str, Any], signature: Signature, settings: InferenceSettings) -> Binding:
    """Bring the columns of a DataFrame and a signature together.

    Args:
        schema: Arrow type of every column.

    Raises:
        ConfigError: a name does not exist, an input has no column, or types do not go together; lists what there is.
    """
    _require(settings.keep, schema, "keep names")
    inputs = tuple(
        InputBinding(spec=spec, columns=columns)
        for spec, columns in _input_columns(schema, signature, settings)
        if _checked(spec, columns, schema)
    )
    outputs = tuple(_outputs(signature, settings))
    taken = {one.column for one in outputs} & set(settings.keep)
    if taken:
        raise ConfigError(
            f"{quoted(taken)} would be both a kept column and an output", "Give the output another column in output_mapping."
        )
    return Binding(inputs=inputs, outputs=outputs, keep=settings.keep, fixed_rows=_fixed_rows(inputs))


def _input_columns(
    schema: Mapping[str, Any], signature: Signature, settings: InferenceSettings
) -> list[tuple[TensorSpec, tuple[str, ...]]]:
    specs = {spec.name: spec for spec in signature.inputs}
    mapping = settings.input_mapping or _by_name(schema, signature, settings)
    _require(mapping, schema, "input_mapping names")
    unknown = {tensor for tensor in mapping.values() if tensor not in specs}
    if unknown:
        raise ConfigError(
            f"input_mapping names {quoted(unknown)}, which the signature {settings.signature_def_key!r} does not take",
            f"Its inputs are {_listed(signature.inputs)}.",
        )
    found = {name: tuple(column for column, tensor in mapping.items() if tensor == name) for name in specs}
    missing = [specs[name] for name, columns in found.items() if not columns]
    if missing:
        raise ConfigError(
            f"no column goes to the input {_listed(missing)}", f"Set input_mapping; the columns are {quoted(schema)}."
        )
    return [(specs[name], columns) for name, columns in found.items()]


def _by_name(schema: Mapping[str, Any], signature: Signature, settings: InferenceSettings) -> dict[str, str]:
    names = [spec.name for spec in signature.inputs]
    if all(name in schema for name in names):
        return {name: name for name in names}
    others = [column for column in schema if column not in settings.keep]
    if len(names) == 1 and len(others) == 1:
        return {others[0]: names[0]}
    if len(names) == 1 and len(schema) == 1:
        return dict.fromkeys(schema, names[0])
    raise ConfigError(
        f"the columns {quoted(schema)} are not named like the inputs {_listed(signature.inputs)}",
        f"Set input_mapping, as in {{{next(iter(schema), 'column')}: {next(iter(names), 'input')}}}.",
    )


def _checked(spec: TensorSpec, columns: Sequence[str], schema: Mapping[str, Any]) -> bool:
    if not spec.is_dense:
        raise ConfigError(f"the input {spec} is sparse or ragged", "Export a signature that takes dense tensors.")
    if spec.shape == ():
        raise ConfigError(f"the input {spec} takes one value for all rows", "Export a signature whose inputs are batches of rows.")
    for column in columns:
        why = can_hold(schema[column], spec, alone=len(columns) == 1)
        if why:
            raise ConfigError(f"column {column!r} ({schema[column]}) can not go to the input {spec}: {why}")
    return True


def _outputs(signature: Signature, settings: InferenceSettings) -> list[OutputBinding]:
    specs = {spec.name: spec for spec in signature.outputs}
    for option, names in (("output_mapping", settings.output_mapping), ("binary_outputs", settings.binary_outputs)):
        unknown = set(names) - set(specs)
        if unknown:
            raise ConfigError(
                f"{option} names {quoted(unknown)}, which the signature {settings.signature_def_key!r} does not give",
                f"Its outputs are {_listed(signature.outputs)}.",
            )
    columns = list(settings.output_mapping.values())
    double = {column for column in columns if columns.count(column) > 1}
    if double:
        raise ConfigError(f"output_mapping gives {quoted(double)} to several outputs", "Give each output its own column.")
    mapping = settings.output_mapping or {name: name for name in specs}
    found = []
    for name in sorted(mapping):
        spec = specs[name]
        kind = column_type(spec, binary=name in settings.binary_outputs)
        if isinstance(kind, str):
            others = [one for one in signature.outputs if not isinstance(column_type(one, binary=False), str)]
            raise ConfigError(
                f"the output {spec} can not become a column: {kind}",
                f"Choose outputs with output_mapping; possible are {_listed(others)}." if others else None,
            )
        found.append(OutputBinding(spec=spec, column=mapping[name], type=kind))
    if not found:
        raise ConfigError("the signature has no outputs")
    return found


def _fixed_rows(inputs: Sequence[InputBinding]) -> int | None:
    sizes = {one.spec.shape[0] for one in inputs if one.spec.shape and one.spec.shape[0] is not None}
    if len(sizes) > 1:
        raise ConfigError(
            f"the inputs {_listed([one.spec for one in inputs])} take different numbers of rows",
            "Export a signature whose first dimension is the batch for every input.",
        )
    return next(iter(sizes), None)


def _require(names: Sequence[str] | Mapping[str, str], schema: Mapping[str, Any], what: str) -> None:
    missing = [name for name in names if name not in schema]
    if missing:
        raise ConfigError(f"{what} {quoted(missing)}, which the data does not have", f"Its columns are {quoted(schema)}.")


def _listed(specs: Sequence[TensorSpec]) -> str:
    return ", ".join(str(spec) for spec in specs)
