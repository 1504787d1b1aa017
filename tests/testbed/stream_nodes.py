"""Functions for nodes that are fed a stream."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from testbed.waiting import poll_until

__all__ = ("fail_after", "take_all")


def take_all(args: dict[str, Any], ctx: Any) -> None:
    """Take rows until the feed ends, or there are `enough`, and say how many there were; begins when there is a file `gate`."""
    feed = ctx.get_data_feed()
    if "gate" in args:
        poll_until(Path(args["gate"]).exists, 60.0, what="the gate")
    rows = 0
    while not feed.should_stop():
        rows += len(feed.next_batch(args.get("batch", 3)))
        if 0 < args.get("enough", 0) <= rows:
            feed.terminate()
            break
    print(f"took {rows} rows, stop requested: {ctx.stop_requested}", flush=True)


def fail_after(args: dict[str, Any], ctx: Any) -> None:
    """Raise when `args["rows"]` rows have come."""
    feed = ctx.get_data_feed()
    rows = 0
    while not feed.should_stop():
        rows += len(feed.next_batch(1))
        if rows >= args["rows"]:
            raise ValueError(f"row {rows} is too much")
