"""A cluster on two hosts with addresses of their own: the driver and one Worker on one of them, the other Worker on the other."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from testbed.commandline import TfosProcess
from testbed.network import Host, TwoHosts, why_no_hosts
from testbed.standalone import StandaloneCluster, WorkerOptions

ROOT = Path(__file__).parents[2]
FETCH = "import sys, urllib.request; print(urllib.request.urlopen(sys.argv[1], timeout=20).status)"


@pytest.fixture
def hosts() -> Iterator[tuple[Host, ...]]:
    reason = why_no_hosts()
    if reason is not None:
        pytest.skip(reason)
    with TwoHosts() as pair:
        yield pair.hosts


@pytest.fixture
def cluster(hosts: tuple[Host, ...]) -> Iterator[StandaloneCluster]:
    first = hosts[0]
    workers = [WorkerOptions(host=host.address, prefix=host.prefix) for host in hosts]
    with StandaloneCluster(workers, host=first.address, prefix=first.prefix) as started:
        yield started


@pytest.mark.parametrize("spec", ["several_hosts", "digits_tensorflow"])
def test_nodes_of_two_hosts_train_one_model(
    spec: str, nothing_left: None, hosts: tuple[Host, ...], cluster: StandaloneCluster, tfos_home: Path, tmp_path: Path
) -> None:
    first, second = hosts
    # Spark's own choice of an address counts, as on a real host.
    environment = {name: value for name, value in os.environ.items() if name != "SPARK_LOCAL_IP"}
    line = ["tfos", "train", str(ROOT / "jobspecs" / f"{spec}.yaml"), "--json", "--master", cluster.url]
    line += ["--set", f"args.export_dir={tmp_path}/model", "--set", "tensorboard.enabled=true", "--set", "tensorboard.keep_secs=10"]
    with TfosProcess(line, environment=environment, folder=tmp_path, prefix=first.prefix) as process:
        board = process.wait_for_event("tensorboard")
        answers = [host.run([sys.executable, "-c", FETCH, board["url"]]).strip() for host in hosts]
        outcome = process.wait(150, exit_code=0)

    events = {event["event"]: event for event in outcome.events if "event" in event}
    server = events["reservation_server"]
    assert server["host"] in (first.address, first.name)
    assert {node["host"] for node in outcome.events if node.get("event") == "node_registered"} == {first.address, second.address}
    # TensorFlow's own servers, which the collective goes through, are reached there.
    assert {address.rpartition(":")[0] for address in events["cluster_ready"]["addresses"].values()} == {
        first.address,
        second.address,
    }
    assert urlsplit(board["url"]).hostname in (first.address, second.address)
    assert answers == ["200", "200"]
    (log,) = (tfos_home / "runs").glob("*/nodes/chief-0.log")
    (accuracy,) = re.findall(r"test accuracy ([0-9.]+)", log.read_text())
    assert float(accuracy) >= 0.95
    assert (tmp_path / "model" / "saved_model.pb").is_file()
