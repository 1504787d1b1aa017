"""One job spec per kind of cluster: the golden commands are made of them, and Spark's own parser reads them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tfos_cli.spec.loader import ResolvedSpec, load_spec

__all__ = ("SPECS", "resolve")

_COMMON = """\
name: digits
entrypoint: apps/digits.py:main_fun
args: {batch_size: 64}
num_executors: 3
data: {path: data/train.csv, options: {header: true}}
environment: {vars: {GREETING: "hello world", API_TOKEN: abcdef}, secrets: [DB_PASSWORD]}
"""

SPECS: dict[str, str] = {
    "embedded": _COMMON + "spark: {executor_cores: 2}\n",
    "standalone": _COMMON
    + """\
spark:
  master: spark://localhost:7077
  executor_cores: 2
  executor_memory: 2g
  jars: [lib/a.jar, "hdfs:///lib/b.jar"]
  py_files: [lib/extra.zip]
  conf: {spark.ui.port: 4050, spark.locality.wait: 1s, spark.authenticate.secret: "open sesame"}
""",
    "yarn-client": _COMMON + "spark: {master: yarn, queue: ml, executor_memory: 6g, packages: ['org.example:lib:1.0'], conf: {}}\n",
    "yarn-cluster": _COMMON
    + "spark: {master: yarn, deploy_mode: cluster, files: [apps/lookup.txt], archives: ['envs/env.tar.gz#env']}\n",
    "kubernetes-client": _COMMON
    + "spark: {master: 'k8s://https://127.0.0.1:1', conf: {spark.kubernetes.container.image: 'example/spark:4.3.0'}}\n",
    "kubernetes-cluster": _COMMON
    + """\
spark:
  master: k8s://https://127.0.0.1:1
  deploy_mode: cluster
  executor_memory_overhead: 3g
  conf: {spark.kubernetes.container.image: "example/spark:4.3.0", spark.kubernetes.file.upload.path: "s3a://bucket/uploads"}
""",
}


def resolve(text: str, folder: Path, *, shown_folder: Path | None = None) -> ResolvedSpec:
    """The resolved spec of a text, as if its file were in `shown_folder`; which Kerases are installed plays no part."""
    path = folder / "job.yaml"
    path.write_text(text, encoding="utf-8")
    resolved = load_spec(path, version_of=_VERSIONS.get)
    return replace(resolved, path=(shown_folder or folder) / "job.yaml")


_VERSIONS = {"tensorflow": "2.21.0", "tf_keras": "2.21.0"}
