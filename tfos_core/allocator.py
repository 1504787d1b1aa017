"""How a process that moves blocks of rows uses memory: what it frees, it keeps for the next block.

glibc gives freed memory back to the kernel, which has to clear each page again before it is used: about a microsecond for each
4 KiB, more than it takes to copy the row inside. So limits are set at once that glibc reaches by itself when a program has freed
32 MiB at a time (`man 3 mallopt`), and `M_TOP_PAD`, without which threads other than the first one give back what they free all
the same. Up to 64 MiB that a thread once used stay with the process.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import gc
import os
from collections.abc import Mapping

__all__ = ("keep_freed_memory", "keep_modules")

_MIB = 1 << 20
# malloc.h
_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD = -1, -2, -3
_NAMES = ("mmap_threshold", "trim_threshold", "top_pad", "mmap_max")
_LIMITS = {_M_MMAP_THRESHOLD: 32 * _MIB, _M_TRIM_THRESHOLD: 64 * _MIB, _M_TOP_PAD: 64 * _MIB}


@functools.cache
def keep_freed_memory() -> None:
    """Set the limits, once in a process; not where the environment sets some, nor without glibc."""
    if is_set_by_user(os.environ):
        return
    with contextlib.suppress(AttributeError, OSError):
        mallopt = ctypes.CDLL(None).mallopt
        for name, value in _LIMITS.items():
            mallopt(name, value)


def is_set_by_user(environ: Mapping[str, str]) -> bool:
    """Whether the environment sets one of these limits (`man 3 mallopt`, `GLIBC_TUNABLES`); YARN sets another, MALLOC_ARENA_MAX."""
    tunables = environ.get("GLIBC_TUNABLES", "")
    return any(f"MALLOC_{name.upper()}_" in environ or f"glibc.malloc.{name}=" in tunables for name in _NAMES)


@functools.cache
def keep_modules() -> None:
    """Leave the objects that exist now, modules above all, out of later garbage collections; once in a process.

    Spark's Python worker collects garbage after each task, which takes some 40 ms with pandas and pyarrow loaded.
    """
    gc.freeze()
