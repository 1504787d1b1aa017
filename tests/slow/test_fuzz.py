"""More than a million frames of strangers, and thousands of damaged specs: nothing is accepted, nothing breaks."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import random
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from testbed.commandline import run_here
from testbed.hostile_frames import Attacker, Tally, attack_handshakes, attack_sessions
from testbed.odd_specs import OddSpecs

from tfos_core.reservation import Client, NodeRecord, Right, Server
from tfos_core.topology import Role

SECRET = bytes(range(32))
JOBSPECS = Path(__file__).parents[2] / "jobspecs"
WAIT_S = 30.0
EXAMPLES = settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
HANDSHAKE_FRAMES, SESSION_FRAMES, PORT_FRAMES, SPECS = 1_000_000, 300_000, 100_000, 5_000
GUIDED_INPUTS = 100_000


def total(attack: Callable[[int, bytes, int], Tally], frames: int) -> Tally:
    """An attack with a thousand frames for each seed that hypothesis thinks of, and then for more, until there are enough."""
    everything = Tally()

    def add(seed: int) -> None:
        tally = attack(seed, SECRET, 1000)
        everything.frames += tally.frames
        everything.accepted += tally.accepted
        assert tally.accepted == 0, f"seed {seed}"

    EXAMPLES(given(seed=st.integers(0, 2**64))(add))()
    seed = 0
    while everything.frames < frames:
        seed += 1
        add(seed)
    return everything


def open_descriptors() -> int:
    return len(list(Path("/dev/fd").iterdir()))


@pytest.mark.timeout(900)
def test_a_million_frames_of_strangers(capsys: pytest.CaptureFixture[str]) -> None:
    handshakes, sessions = total(attack_handshakes, HANDSHAKE_FRAMES), total(attack_sessions, SESSION_FRAMES)
    assert handshakes.frames >= HANDSHAKE_FRAMES
    assert sessions.frames >= SESSION_FRAMES
    assert handshakes.accepted == sessions.accepted == 0
    with capsys.disabled():
        print(f"\n{handshakes.frames:,} frames without the secret, {sessions.frames:,} put into sessions: 0 accepted, 0 crashes")


@pytest.mark.timeout(900)
@pytest.mark.skipif(importlib.util.find_spec("atheris") is None, reason="atheris has wheels for Linux on x86-64 only")
def test_frames_that_reach_ever_more_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = Path(__file__).parents[1] / "testbed" / "guided_frames.py"
    path = os.pathsep.join([str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")])
    options = [f"-atheris_runs={GUIDED_INPUTS}", "-seed=1", "-max_len=512", "-print_final_stats=1"]
    done = subprocess.run(
        [sys.executable, str(script), *options],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=850,
    )
    assert done.returncode == 0, done.stderr[-5000:]
    frames, refused = map(int, (tmp_path / "frames.txt").read_text().split())
    assert frames > GUIDED_INPUTS
    assert refused > GUIDED_INPUTS / 4
    with capsys.disabled():
        print(f"\n{GUIDED_INPUTS:,} inputs, {frames:,} frames led by coverage: 0 accepted, 0 crashes")


@pytest.mark.timeout(900)
def test_a_port_under_fire_serves_its_nodes(capsys: pytest.CaptureFixture[str]) -> None:
    sent = [0] * 4
    slowest, over = 0.0, threading.Event()
    with Server(("worker:0", "worker:1"), secret=SECRET, host="127.0.0.1", environ={}) as server:
        descriptors = open_descriptors()

        def fire(seed: int) -> None:
            attacker = Attacker(seed, SECRET)
            while not over.is_set():
                conversation = attacker.conversation()
                with contextlib.suppress(OSError), socket.create_connection(server.address, timeout=WAIT_S) as stranger:
                    for piece in attacker.pieces(b"".join(conversation)):
                        stranger.sendall(piece)
                    sent[seed] += len(conversation)

        with contextlib.ExitStack() as stack:
            node = stack.enter_context(Client(server.address, secret=SECRET, timeout=WAIT_S))
            node.register(NodeRecord(executor_id=0, role=Role.WORKER, index=0, host="h", port=1, pid=1))
            for _ in range(200):  # and some who say nothing at all
                stack.enter_context(socket.create_connection(server.address, timeout=WAIT_S))
            threads = [threading.Thread(target=fire, args=(seed,)) for seed in range(len(sent))]
            for thread in threads:
                thread.start()
            deadline, number = time.monotonic() + 600, 0
            try:
                while sum(sent) < PORT_FRAMES and time.monotonic() < deadline:
                    began, number = time.monotonic(), number + 1
                    server.send("worker:0", {"op": "x", "n": number})
                    assert node.receive(WAIT_S)["n"] == number
                    with Client(server.address, secret=SECRET, right=Right.READ, timeout=WAIT_S) as reader:
                        assert [entry.name for entry in reader.get_reservations()] == ["worker:0"]
                    slowest = max(slowest, time.monotonic() - began)
            finally:
                over.set()
                for thread in threads:
                    thread.join(WAIT_S)
        assert sum(sent) >= PORT_FRAMES
        assert not server.stop_requested.is_set()
        assert [entry.name for entry in server.reservations.get()] == ["worker:0"]
        deadline = time.monotonic() + WAIT_S
        while open_descriptors() > descriptors and time.monotonic() < deadline:
            time.sleep(0.05)
        assert open_descriptors() <= descriptors
    rounds = f"{number} rounds of a node and a newcomer, at most {slowest:.2f} s each"
    with capsys.disabled():
        print(f"\n{sum(sent):,} frames at the port: 0 accepted; {rounds}")


@pytest.mark.timeout(900)
def test_thousands_of_damaged_specs_end_in_findings(tmp_path: Path) -> None:
    odd = OddSpecs(random.Random(11), JOBSPECS)
    for _ in range(SPECS):
        assert odd.try_one(tmp_path, run_here) == ""
