"""Streams that are fed to a cluster batch by batch until they are stopped: Structured Streaming and DStreams."""

from __future__ import annotations

from tfos_core.streaming.feed import StreamFeed
from tfos_core.streaming.sources import is_stream

__all__ = ("StreamFeed", "is_stream")
