"""A SparkContext on separate executor processes, and clusters of real daemons."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from testbed.spark_context import start_context
from testbed.standalone import StandaloneCluster

if TYPE_CHECKING:
    from pyspark import SparkContext


@pytest.fixture(scope="module")
def sc() -> Iterator[SparkContext]:
    """`local-cluster[2,1,1024]` for the tests of one module, with the settings that submission sets."""
    with start_context("local-cluster[2,1,1024]") as context:
        yield context


@pytest.fixture
def standalone() -> Iterator[StandaloneCluster]:
    """A Master and two Workers with one core each."""
    with StandaloneCluster(2) as cluster:
        yield cluster
