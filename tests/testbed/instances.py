"""Functions that tests run as instances of a parallel job; executors import this module."""

from __future__ import annotations

import os
from typing import Any


def who_am_i(args: Any, ctx: Any) -> Any:
    return {
        "index": ctx.task_index,
        "of": ctx.num_workers,
        "args": args,
        "tf_config": os.environ.get("TF_CONFIG"),
        "pid": os.getpid(),
    }


def one_fails(args: Any, ctx: Any) -> Any:
    if ctx.task_index == args:
        raise ValueError(f"no luck with {args}")
    return ctx.task_index


def not_json(args: Any, ctx: Any) -> Any:
    return object()
