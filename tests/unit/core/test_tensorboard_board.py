"""TensorBoard beside a node and as the driver sees it, with programs that play its part."""

from __future__ import annotations

import os
import socket
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from testbed.clusters import Recorder
from testbed.processes import read_process
from testbed.waiting import poll_until

from tfos_core.node_config import ClusterConfig, NodeConfig
from tfos_core.reservation import NodeRecord
from tfos_core.settings import MARK_VARIABLE
from tfos_core.tensorboard import TensorBoardOptions
from tfos_core.tensorboard.board import ClusterBoard, board_url
from tfos_core.tensorboard.command import board_command, board_environment, hold_board_port, wanted_port
from tfos_core.tensorboard.node_side import NodeBoard
from tfos_core.tensorboard.options import board_node
from tfos_core.topology import ClusterPlan, InputMode, NodeSlot, Role

SERVER = """#!{python}
import http.server, socket, sys
arguments = dict(zip(sys.argv[4::2], sys.argv[5::2]))
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == "/data/environment" else 404)
        self.end_headers()
class Server(http.server.HTTPServer):
    allow_reuse_port = True
    def server_bind(self):
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        super().server_bind()
Server((arguments["--host"], int(arguments["--port"])), Handler).serve_forever()
"""
MISSING = "#!/bin/sh\necho \"$0: No module named 'tensorboard'\" >&2\nexit 1\n"


def config_of(folder: Path, *, python: str = sys.executable, **cluster: Any) -> NodeConfig:
    settings: dict[str, Any] = {
        "run_id": "digits-1",
        "generation": "abc",
        "server_host": "127.0.0.1",
        "server_port": 1,
        "secret": "00",
        "has_user_secrets": False,
        "input_mode": InputMode.TENSORFLOW,
        "reservation_timeout": 1.0,
        "release_port": True,
        "environment": {"MINE": "1"},
        "keras": None,
        "threads": None,
        "default_fs": "file://",
        "num_epochs": 1,
        "data": {},
        "log_dir": None,
        "tensorboard_node": "worker:0",
    }
    return NodeConfig(
        cluster=ClusterConfig(**settings | cluster),
        slot=NodeSlot(executor_id=0, role=Role.WORKER, index=0),
        jvm_pid=0,
        jvm_started=0,
        working_dir=str(folder),
        python=python,
        python_path=os.pathsep.join(sys.path),
    )


def program(folder: Path, text: str) -> str:
    path = folder / "python"
    path.write_text(text.replace("{python}", sys.executable))
    path.chmod(0o755)
    return str(path)


class Said:
    """What a node sends."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self.messages: list[Mapping[str, Any]] = []

    def __call__(self, message: Mapping[str, Any]) -> None:
        with self._changed:
            self.messages.append(message)
            self._changed.notify_all()

    def wait_for(self, op: str) -> Mapping[str, Any]:
        with self._changed:
            assert self._changed.wait_for(lambda: any(m["op"] == op for m in self.messages), 30), self.messages
            return next(m for m in self.messages if m["op"] == op)


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"num_ps": 1, "master_node": "chief", "eval_node": True}, "chief:0"),
        ({"master_node": "master"}, "master:0"),
        ({"num_ps": 2}, "worker:0"),
    ],
)
def test_it_runs_beside_the_node_that_leads(settings: dict[str, Any], name: str) -> None:
    assert board_node(ClusterPlan.build(4, **settings)) == name


@pytest.mark.parametrize(
    ("settings", "base"),
    [
        ({}, "/work/tfos-tensorboard-abc"),
        ({"log_dir": "/logs"}, "/logs"),
        ({"log_dir": "logs"}, "/work/logs"),
        ({"log_dir": "logs", "base_dir": "/job"}, "/job/logs"),
        ({"log_dir": "file:///logs"}, "/logs"),
        ({"log_dir": "gs://bucket/logs"}, "gs://bucket/logs"),
        ({"log_dir": "hdfs://nn/logs", "base_dir": "/job"}, "/work/tfos-tensorboard-abc"),
    ],
)
def test_every_node_has_a_folder_of_its_own_below_the_one_that_is_shown(settings: dict[str, Any], base: str) -> None:
    config = config_of(Path("/work"), **settings)
    assert (config.log_base, config.log_dir) == (base, f"{base}/worker-0")


@pytest.mark.parametrize(
    ("log_dir", "mirror"), [("hdfs://nn/logs", "hdfs://nn/logs/worker-0"), ("gs://bucket", None), ("/logs", None), (None, None)]
)
def test_files_are_copied_to_where_tensorflow_can_not_write(log_dir: str | None, mirror: str | None) -> None:
    assert config_of(Path("/work"), log_dir=log_dir).mirror_dir == mirror


def test_without_tensorboard_and_collecting_there_is_no_folder_that_nobody_asked_for() -> None:
    assert config_of(Path("/work"), tensorboard_node="").log_dir is None
    assert config_of(Path("/work"), tensorboard_node="", collects_files=True).log_dir is not None
    assert config_of(Path("/work"), tensorboard_node="", log_dir="/logs").log_dir == "/logs/worker-0"


def test_the_settings_reach_the_node_through_json(tmp_path: Path) -> None:
    config = config_of(tmp_path, tensorboard_port=7, tensorboard_bind="loopback", collects_files=True, collect_interval_s=2.5)
    assert NodeConfig.from_dict(config.to_dict()) == config


def test_the_command_shares_a_held_port_and_is_tied_to_this_process() -> None:
    command = board_command("/env/python", log_base="/logs", host="10.0.0.7", port=6006, title="digits-1")
    assert command[:4] == ["/env/python", "-m", "tfos_core.tensorboard.launcher", str(os.getpid())]
    assert " ".join(command[4:]).startswith("--logdir /logs --host 10.0.0.7 --port 6006 --reuse_port true ")


def test_it_is_no_part_of_the_cluster_and_takes_no_gpu(tmp_path: Path) -> None:
    base = {"TF_CONFIG": "{}", "CUDA_VISIBLE_DEVICES": "0", "PYTHON_WORKER_FACTORY_SECRET": "s", "PATH": "/bin"}
    env = board_environment(config_of(tmp_path), base, temporary="/t")
    assert "TF_CONFIG" not in env
    assert "PYTHON_WORKER_FACTORY_SECRET" not in env
    assert (env["CUDA_VISIBLE_DEVICES"], env["PATH"], env["MINE"], env["TMPDIR"]) == ("-1", "/bin", "1", "/t")
    assert env[MARK_VARIABLE] == "digits-1:abc:worker:0"


@pytest.mark.parametrize(("chosen", "variable", "port"), [(0, "", 0), (0, "6007", 6007), (6006, "6007", 6006), (0, " 0 ", 0)])
def test_the_port_is_the_chosen_one_or_that_of_the_environment_or_any(chosen: int, variable: str, port: int) -> None:
    assert wanted_port(chosen, {"TENSORBOARD_PORT": variable}) == port


@pytest.mark.parametrize("variable", ["x", "-1", "70000", "6006;"])
def test_an_environment_that_names_no_port_is_told(variable: str) -> None:
    with pytest.raises(ValueError, match="TENSORBOARD_PORT is"):
        wanted_port(0, {"TENSORBOARD_PORT": variable})


def test_a_port_that_another_one_shares_and_listens_on_is_taken() -> None:
    with hold_board_port(0) as holder, socket.socket() as listener:
        port = holder.getsockname()[1]
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listener.bind(("127.0.0.1", port))
        listener.listen()
        with pytest.raises(OSError, match="in use"):
            hold_board_port(port)


def test_a_taken_port_becomes_a_free_one_with_a_warning(tmp_path: Path) -> None:
    said = Said()
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        taken = listener.getsockname()[1]
        board = NodeBoard(config_of(tmp_path, python=program(tmp_path, MISSING)), send=said)
        assert board.hold_port({"TENSORBOARD_PORT": str(taken)}) not in (None, taken)
        board.start("127.0.0.1")
        assert "takes a free port" in said.wait_for("node.warning")["message"]
        board.close()


def test_other_nodes_hold_no_port_and_start_nothing(tmp_path: Path) -> None:
    board = NodeBoard(config_of(tmp_path, tensorboard_node="chief:0"), send=Said())
    assert board.hold_port({}) is None
    board.start("127.0.0.1")
    assert board.pid is None
    board.close()


def test_it_is_announced_when_it_answers_and_is_gone_after_close(tmp_path: Path) -> None:
    said = Said()
    board = NodeBoard(config_of(tmp_path, python=program(tmp_path, SERVER)), send=said)
    port = board.hold_port({})
    board.start("127.0.0.1")
    assert said.wait_for("tensorboard.up")["host"] == "127.0.0.1"
    pid = board.pid
    assert pid is not None
    board.close()
    board.close()
    poll_until(lambda: read_process(pid) is None, 10, what="it is gone")
    assert [message["op"] for message in said.messages] == ["tensorboard.up"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["python", "tfos-worker-0-tensorboard.log"]
    with socket.socket() as again:
        again.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        again.bind(("127.0.0.1", port))


def test_a_missing_module_is_told_with_the_python_that_lacks_it(tmp_path: Path) -> None:
    said = Said()
    board = NodeBoard(config_of(tmp_path, python=program(tmp_path, MISSING)), send=said)
    board.hold_port({})
    board.start("127.0.0.1")
    message = said.wait_for("tensorboard.down")
    assert "ended with code 1" in message["message"]
    assert "No module named 'tensorboard'" in message["message"]
    assert message["hint"] == f"Install the package tensorboard for {tmp_path / 'python'} on every executor."
    board.close()


def test_its_death_is_told(tmp_path: Path) -> None:
    said = Said()
    board = NodeBoard(config_of(tmp_path, python=program(tmp_path, SERVER)), send=said)
    board.hold_port({})
    board.start("127.0.0.1")
    said.wait_for("tensorboard.up")
    assert board.pid is not None
    os.kill(board.pid, 9)
    assert "was killed by signal 9" in said.wait_for("tensorboard.down")["message"]
    board.close()


def test_an_interpreter_that_can_not_be_started_is_told(tmp_path: Path) -> None:
    said = Said()
    board = NodeBoard(config_of(tmp_path, python=str(tmp_path / "nothing")), send=said)
    board.hold_port({})
    board.start("127.0.0.1")
    assert "could not be started" in said.wait_for("tensorboard.down")["message"]
    board.close()


def record(*, tb_port: int | None = 6006, name: Role = Role.CHIEF) -> NodeRecord:
    return NodeRecord(executor_id=0, role=name, index=0, host="10.0.0.7", port=1, pid=1, tb_port=tb_port)


def cluster_board(events: Recorder, **options: Any) -> ClusterBoard:
    return ClusterBoard(TensorBoardOptions(enabled=True, **options), node="chief:0", sink=None, emit=events)


def test_addresses_of_both_kinds_become_urls() -> None:
    assert board_url("10.0.0.7", 6006) == "http://10.0.0.7:6006"
    assert board_url("fd00::7", 6006) == "http://[fd00::7]:6006"


def test_the_url_is_known_with_the_node_and_told_when_it_answers() -> None:
    events = Recorder()
    board = cluster_board(events)
    assert board.url is None
    board.registered(record())
    assert board.url == "http://10.0.0.7:6006"
    assert events.kinds == []
    board.handle("chief:0", {"op": "tensorboard.up", "host": "10.0.0.7"})
    assert events.wait_for("tensorboard").url == "http://10.0.0.7:6006"


def test_a_loopback_address_is_told_with_its_host() -> None:
    events = Recorder()
    board = cluster_board(events, bind="loopback")
    board.registered(record())
    board.handle("chief:0", {"op": "tensorboard.up", "host": "10.0.0.7"})
    told = events.wait_for("tensorboard")
    assert (told.url, told.host) == ("http://127.0.0.1:6006", "10.0.0.7")


def test_there_is_no_url_without_a_port_or_after_its_end() -> None:
    events = Recorder()
    board = cluster_board(events)
    board.registered(record(tb_port=None))
    assert board.url is None
    board.registered(record())
    board.handle("chief:0", {"op": "tensorboard.down", "message": "it died", "hint": "h"})
    assert board.url is None
    assert events.wait_for("warning").id == "tensorboard"
    board.registered(record())
    board.gone("chief:0")
    assert board.url is None


@pytest.mark.parametrize("how", ["let go", "died", "node lost"])
def test_it_is_kept_until_it_is_let_go_or_gone(how: str) -> None:
    events, stopped = Recorder(), []
    board = cluster_board(events, keep_secs=3600)
    board.registered(record())
    keeping = threading.Thread(target=board.keep, args=(stopped.append,))
    keeping.start()
    assert events.wait_for("tensorboard_kept").seconds == 3600
    assert stopped == ["chief:0"]
    if how == "let go":
        assert board.let_go()
    elif how == "died":
        board.handle("chief:0", {"op": "tensorboard.down", "message": "it died", "hint": ""})
    else:
        board.gone("chief:0")
    keeping.join(20)
    assert not keeping.is_alive()
    assert not board.let_go()


def test_nothing_is_kept_when_nothing_runs_or_nobody_asked() -> None:
    events, stopped = Recorder(), []
    cluster_board(events, keep_secs=3600).keep(stopped.append)
    board = cluster_board(events)
    board.registered(record())
    board.keep(stopped.append)
    assert (events.kinds, stopped) == ([], [])
