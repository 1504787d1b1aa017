"""A node's end of the feed, without a driver."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tfos_core.feed.hub import FeedHub


class Nowhere:
    def send(self, message: dict[str, Any]) -> None:
        pass


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[FeedHub]:
    one, other = socket.socketpair()
    with one, other:
        made = FeedHub(one, node="worker:0", generation="g", uplink=Nowhere(), progress_path=tmp_path / "progress")
        yield made
        made.stop()
