"""What a process frees it keeps: no page has to be asked of the kernel again. Each case is a process of its own."""

from __future__ import annotations

import gc
import os
import platform
import subprocess
import sys

import pytest

from tfos_core.allocator import is_set_by_user, keep_modules

FAULTS = """
import resource, threading
import numpy as np
from tfos_core.allocator import keep_freed_memory
{call}
def fill():
    for _ in range({rounds}):
        blocks = [np.ones(1 << 20, np.uint8) for _ in range(24)]
        del blocks
def measure():
    fill()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    fill()
    print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
{run}
"""
IN_FIRST = "measure()"
# In one thread: a second one can get other memory than the first one had, when it begins before that has quite ended.
IN_OTHER = "thread = threading.Thread(target=measure); thread.start(); thread.join()"
#: What one round touches, in pages.
PAGES = 24 * 256


def faults(run: str, call: str = "keep_freed_memory()", **environ: str) -> int:
    script = FAULTS.format(run=run, call=call, rounds=10)
    plain = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    ended = subprocess.run([sys.executable, "-c", script], env=plain | environ, capture_output=True, text=True, check=True)
    return int(ended.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the limits are glibc's")
@pytest.mark.parametrize("run", [IN_FIRST, IN_OTHER], ids=["first thread", "another thread"])
def test_freed_blocks_are_used_again_without_a_page_fault(run: str) -> None:
    assert faults(run) < PAGES / 10


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the limits are glibc's")
def test_without_the_limits_the_kernel_is_asked_for_every_page() -> None:
    assert faults(IN_FIRST, call="") > PAGES


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the limits are glibc's")
def test_limits_of_the_environment_stay() -> None:
    assert faults(IN_FIRST, MALLOC_MMAP_THRESHOLD_="65536", MALLOC_TRIM_THRESHOLD_="65536") > PAGES


def test_the_environment_is_known_by_its_names() -> None:
    assert is_set_by_user({"MALLOC_TRIM_THRESHOLD_": "131072"})
    assert is_set_by_user({"GLIBC_TUNABLES": "glibc.rtld.nns=2:glibc.malloc.top_pad=1"})
    # Hadoop's containers have the first one, and it says nothing of these limits.
    assert not is_set_by_user({"MALLOC_ARENA_MAX": "4", "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1", "PATH": "/bin"})


def test_modules_are_left_out_of_garbage_collections() -> None:
    try:
        keep_modules()
        assert gc.get_freeze_count() > 1000
    finally:
        gc.unfreeze()
        keep_modules.cache_clear()
