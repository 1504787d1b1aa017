"""What nodes with GPUs tell a test: the devices that their processes see."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from testbed.nodes import note, notes
from testbed.waiting import poll_until

__all__ = ("tell_devices",)


def tell_devices(args: dict[str, Any], ctx: Any) -> None:
    """Note what CUDA will read, and take all rows; a ps stays until it is stopped.

    `args["nodes"]` is how many must have noted before a worker ends: with its end a ps is stopped, whether it has run or not.
    """
    note(
        args,
        ctx,
        devices=os.environ.get("CUDA_VISIBLE_DEVICES"),
        order=os.environ.get("CUDA_DEVICE_ORDER"),
    )
    if ctx.job_name == "ps":
        time.sleep(300)
    poll_until(lambda: len(notes(Path(args["folder"]))) >= args.get("nodes", 1), 60, what="all nodes have noted")
    feed = ctx.get_data_feed() if ctx.mgr is not None else None
    while feed is not None and not feed.should_stop():
        feed.next_batch(100)
