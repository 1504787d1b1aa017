"""The programs of docs/data.md and docs/storage.md run as they are printed, and their specs are valid."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

if TYPE_CHECKING:
    from tests.conftest import RunLine

ROOT = Path(__file__).parents[2]
DATA = ROOT / "jobspecs" / "data" / "digits_tfrecord"
LONGEST_S = 150
BUILD = """

def build(args):
    import tensorflow as tf

    model = tf.keras.Sequential([tf.keras.Input((64,), name="image"), tf.keras.layers.Dense(10)])
    model.compile("adam", tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model
"""


def blocks(page: str, kind: str) -> list[str]:
    return re.findall(rf"```{kind}\n(.*?)```", (ROOT / "docs" / page).read_text(encoding="utf-8"), re.DOTALL)


def test_the_programs_of_the_pages_run(run_line: RunLine, tmp_path: Path) -> None:
    # Both in one job, because most of its time is the start of its processes.
    (storage,) = blocks("storage.md", "python")
    (data,) = (block for block in blocks("data.md", "python") if "def main_fun" in block)
    (tmp_path / "from_data.py").write_text(data + BUILD, encoding="utf-8")
    (tmp_path / "from_storage.py").write_text(storage, encoding="utf-8")
    (tmp_path / "train.py").write_text(
        "import from_data, from_storage\n\n\ndef main_fun(args, ctx):\n    from_data.main_fun(args, ctx)\n"
        "    from_storage.main_fun(args, ctx)\n",
        encoding="utf-8",
    )
    (spec,) = map(yaml.safe_load, blocks("storage.md", "yaml"))
    del spec["spark"]
    spec["num_executors"] = 1
    spec["num_epochs"] = 2
    spec["args"] = {
        "batch_size": 64,
        "test_data": str(DATA / "test"),
        "model_dir": str(tmp_path / "model"),
        "checkpoint_dir": str(tmp_path / "checkpoints"),
    }
    spec["data"] |= {"path": str(DATA / "train"), "columns": ["image", "label"]}
    spec["tensorboard"]["log_dir"] = str(tmp_path / "logs")
    (tmp_path / "job.yaml").write_text(json.dumps(spec), encoding="utf-8")
    outcome = run_line("tfos train job.yaml", fresh=True, timeout_s=LONGEST_S)
    assert "serving_default" in outcome.stdout
    assert (tmp_path / "model" / "saved_model.pb").is_file()
    assert (tmp_path / "model-notes.txt").read_text() == "trained on digits\n"
    assert len(list((tmp_path / "checkpoints").rglob("progress.json"))) == 2


def test_the_specs_of_the_pages_are_valid(run_line: RunLine, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("def main_fun(args, ctx):\n    pass\n", encoding="utf-8")
    (storage,) = blocks("storage.md", "yaml")
    (tmp_path / "storage.yaml").write_text(storage, encoding="utf-8")
    run_line("tfos validate storage.yaml")
    (tmp_path / "images.parquet").mkdir()
    parts = blocks("data.md", "yaml")
    assert len(parts) == 2
    for part in parts:
        (tmp_path / "data.yaml").write_text(f"name: a\nentrypoint: train.py:main_fun\n{part}", encoding="utf-8")
        run_line("tfos validate data.yaml")
