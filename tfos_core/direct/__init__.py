"""Nodes that read Parquet and TFRecord files themselves, each its share, without Spark in between: `ctx.dataset()`.

Shares are contiguous ranges of all rows (Parquet) or bytes (TFRecord files), so that every row is on exactly one node whatever the
number and the sizes of the files. They depend on the files, the number of nodes and the seed only, so nodes need not talk.
"""

from __future__ import annotations

from tfos_core.direct.errors import DataError
from tfos_core.direct.request import DataRequest, make_dataset

__all__ = ("DataError", "DataRequest", "make_dataset")
