"""A program in which worker 1 goes wrong as `args.fault` says. Tests copy this file beside a job spec: nodes have nothing else.

Nodes leave notes in `args.folder`: `worker-0` with the process id once a node is in a step, and `fault-at` with the time of what
goes wrong.
"""

from __future__ import annotations

import os
import pathlib
import sys
import time

PARTITIONS = 4
ROWS = 4_000
BATCH = 10
STEPS = 5
#: A job that a test has left does not stay for ever, in seconds.
LONGEST_S = 150


def rows(spark, args):
    return spark.sparkContext.parallelize(range(ROWS), PARTITIONS)


def main_fun(args, ctx):
    folder = pathlib.Path(args.folder)
    note(folder / f"started-{ctx.task_index}", "")
    is_faulty = ctx.task_index == 1
    if is_faulty and args.fault == "raise before":
        go_wrong(args, folder, "started")
    feed = ctx.get_data_feed() if ctx.mgr is not None else None
    step = 0
    while step < STEPS if feed is None else not feed.should_stop():
        if feed is not None:
            feed.next_batch(BATCH if step < STEPS else ROWS)
        step += 1
        print(f"step {step} of worker {ctx.task_index}")
        if step == 1:
            note(folder / f"worker-{ctx.task_index}", f"{os.getpid()} {pathlib.Path.cwd()}")
        if args.fault == "train":
            wait_for(folder / "go-on")
        elif is_faulty and args.fault != "raise after":
            go_wrong(args, folder, "worker")
        elif args.fault in ("stay", "raise while", "exit", "exit code", "write"):
            time.sleep(LONGEST_S)
    if is_faulty and args.fault == "raise after":
        go_wrong(args, folder, "worker")


def go_wrong(args, folder, when):
    """When both nodes are there, so that one has to notice the other's end."""
    for index in range(2):
        wait_for(folder / f"{when}-{index}")
    if args.fault == "stay":
        time.sleep(LONGEST_S)
    elif args.fault == "write":
        write_checkpoints()
    note(folder / "fault-at", str(time.time()))
    if args.fault == "exit":
        sys.exit(3)
    if args.fault == "exit code":
        os._exit(137)
    if args.fault == "hang":
        wait_for_a_lock_that_nobody_gives_back()
    raise ValueError("no column 'label'")


def write_checkpoints():
    """Until the disk of the executor's folder is full."""
    for number in range(LONGEST_S * 20):
        time.sleep(0.05)
        pathlib.Path(f"checkpoint-{number % 10}").write_bytes(b"x" * 65536)


def wait_for_a_lock_that_nobody_gives_back():
    time.sleep(LONGEST_S)


def note(path, text):
    path.with_suffix(".new").write_text(text)
    path.with_suffix(".new").rename(path)


def wait_for(path):
    until = time.monotonic() + LONGEST_S
    while not path.exists():
        if time.monotonic() > until:
            raise TimeoutError(f"{path} did not come")
        time.sleep(0.02)
