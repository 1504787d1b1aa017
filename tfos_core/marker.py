"""Markers between rows: public names of 2022.

Partition ends travel as frames of their own now (tfos_core.feed.wire), so no marker is ever among the rows.
"""

from __future__ import annotations

__all__ = ("EndPartition", "Marker")


class Marker:
    """Base of all markers."""


class EndPartition(Marker):
    """The end of one partition of an inference feed."""
