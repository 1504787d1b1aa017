"""`tfos env-check SPEC` on two hosts, one of which may not connect to the ports of the driver's server."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from testbed.commandline import TfosProcess
from testbed.network import Host, TwoHosts, why_no_hosts
from testbed.standalone import StandaloneCluster, WorkerOptions

PORTS = "41700-41720"
SPEC = "name: checked\nentrypoint: job.py:main_fun\nnum_executors: 2\n"


@pytest.fixture
def hosts() -> Iterator[tuple[Host, ...]]:
    reason = why_no_hosts()
    if reason is not None:
        pytest.skip(reason)
    with TwoHosts() as pair:
        yield pair.hosts


def test_a_host_whose_firewall_keeps_it_from_the_driver_is_named(
    nothing_left: None, hosts: tuple[Host, ...], tfos_home: Path, tmp_path: Path
) -> None:
    first, second = hosts
    second.run(["ip", "rule", "add", "ipproto", "tcp", "dport", PORTS, "prohibit"])
    (tmp_path / "job.py").write_text("def main_fun(args, ctx):\n    pass\n")
    (tmp_path / "job.yaml").write_text(SPEC)
    workers = [WorkerOptions(host=host.address, prefix=host.prefix) for host in hosts]
    environment = {name: value for name, value in os.environ.items() if name != "SPARK_LOCAL_IP"}
    with StandaloneCluster(workers, host=first.address, prefix=first.prefix) as cluster:
        line = ["tfos", "env-check", str(tmp_path / "job.yaml"), "--json", "--master", cluster.url]
        with TfosProcess(
            line, environment=environment | {"TFOS_SERVER_PORT": PORTS}, folder=tmp_path, prefix=first.prefix
        ) as process:
            told = json.loads(process.wait(150, exit_code=3).stdout)
    wrong = {check["check"]: check for check in told["checks"] if check["status"] == "failure"}
    assert set(wrong) == {"reach-driver"}
    assert wrong["reach-driver"]["where"] == [second.name]
    assert "TFOS_SERVER_PORT" in wrong["reach-driver"]["fix"]
    assert [(one["machine"], one["aspect"]) for one in told["differences"]] == [(second.name, "reach the driver")]
