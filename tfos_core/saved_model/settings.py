"""What the user asks of batch inference."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tfos_core.errors import ConfigError

__all__ = ("InferenceSettings",)


@dataclass(frozen=True, slots=True, kw_only=True)
class InferenceSettings:
    """Which model, and what goes into it and comes out.

    Attributes:
        export_dir: a SavedModel folder or a `.keras` file: a path, or a URL that Hadoop's file systems know.
        signature_def_key: the signature that is called.
        tag_set: tags of the graph, separated by commas.
        input_mapping: column to input of the signature; several columns of one input are put side by side in this order. Empty:
            columns are named like the inputs, or the only column that is not kept goes to the only input.
        output_mapping: output of the signature to column; empty takes all outputs under their own names.
        batch_size: rows per call of the model.
        keep: columns that go through untouched.
        bad_rows: where rows go that can not be computed; None: such a row is an error.
        binary_outputs: outputs of type string that are bytes, not text.
    """

    export_dir: str
    signature_def_key: str = "serving_default"
    tag_set: str = "serve"
    input_mapping: Mapping[str, str] = field(default_factory=dict)
    output_mapping: Mapping[str, str] = field(default_factory=dict)
    batch_size: int = 128
    keep: tuple[str, ...] = ()
    bad_rows: str | None = None
    binary_outputs: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.batch_size < 1:
            raise ConfigError(f"batch_size is {self.batch_size}", "Use 1 or more rows per call of the model.")

    @property
    def tags(self) -> frozenset[str]:
        """The tags one by one."""
        return frozenset(tag.strip() for tag in self.tag_set.split(",") if tag.strip())
