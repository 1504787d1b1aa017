"""The environment that runs these tests, TensorFlow and all, packed and shipped to Workers whose own Python has nothing."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from fakes.environments import make_venv
from testbed.standalone import StandaloneCluster, WorkerOptions

from tfos_cli.submit.environment_pack import PackCache

if TYPE_CHECKING:
    from tests.conftest import RunLine

ROOT = Path(__file__).parents[2]
SPEC = ROOT / "jobspecs" / "shipped_environment.yaml"
LONGEST_S = 840


@pytest.mark.timeout(LONGEST_S + 60)
@pytest.mark.skipif(not Path(sys.prefix, "pyvenv.cfg").is_file(), reason="the tests do not run in a virtual environment")
def test_the_example_trains_where_there_is_no_tensorflow(run_line: RunLine, tfos_home: Path, tmp_path: Path) -> None:
    bare = make_venv(tmp_path / "bare") / "bin" / "python"
    environment = {"PATH": f"{bare.parent}:{os.environ['PATH']}", "PYSPARK_PYTHON": str(bare)}
    packed = PackCache.of_environment({"TFOS_HOME": str(tfos_home)}).venv(Path(sys.prefix), 1)
    written = packed.stat().st_mtime_ns
    with StandaloneCluster([WorkerOptions(environment=environment)] * 2) as cluster:
        line = ["tfos", "train", str(SPEC), "--master", cluster.url, "--set", f"args.export_dir={tmp_path}/model"]
        outcome = run_line(line, fresh=True, timeout_s=LONGEST_S)
        unpacked = list(cluster.folder.glob("worker-*/work/app-*/*/environment/bin/python"))
    assert len(unpacked) == 2
    (accuracy,) = re.findall(r"test accuracy ([0-9.]+)", outcome.stdout)
    assert float(accuracy) >= 0.95
    assert (tmp_path / "model" / "saved_model.pb").is_file()
    # It was there, so nothing was packed, and the run has let go of its link.
    assert "packing" not in outcome.stderr
    assert list((tfos_home / "cache" / "environments").glob("*/environment.tar.gz")) == [packed]
    assert (packed.stat().st_mtime_ns, packed.stat().st_nlink) == (written, 1)
