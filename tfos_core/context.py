"""What the user's function gets as `ctx`: who this node is, who the others are, and its ways to data and export."""

from __future__ import annotations

import posixpath
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfos_core.errors import ClusterStateError
from tfos_core.paths import absolute_path, local_path
from tfos_core.topology import InputMode, Role

if TYPE_CHECKING:
    from tfos_core.checkpoint import Checkpoints
    from tfos_core.feed.datafeed import DataFeed
    from tfos_core.feed.hub import FeedHub

__all__ = ("TFNodeContext",)


class TFNodeContext:
    """One node as the user's function sees it.

    Attributes:
        executor_id: position of the node in the cluster, from 0; `worker_num` is the 2022 name of the same number.
        job_name: `chief`, `master`, `worker`, `ps` or `evaluator`.
        task_index: position among the nodes of the same role, from 0.
        cluster_spec: role -> list of `host:port` of the training cluster; the evaluator is in its own only.
        num_workers: nodes that train: chief or master, and workers; the number of instances in a parallel job.
        defaultFS: Hadoop's default file system on the driver, such as `hdfs://namenode:8020`, or `file://`.
        working_dir: folder that relative paths of a `file://` default file system start from.
        mgr: what `TFNode.DataFeed` takes; None when nothing is fed to this node.
        tmp_socket: always None: the port is held by the node's supervisor and never lost (2022 kept a socket here).
        input_mode: `InputMode.SPARK` or `InputMode.TENSORFLOW`.
        num_epochs: how many epochs the job asks for.
        data: the data section of the job: `path`, `format`, `options`, `columns`, `input_mapping`.
        run_id: name of the run.
        restart_count: how often the job was started again after a failure; 0 at first.
        first_epoch: the epoch, from 0, that Spark begins to feed with: above 0 after a restart from a checkpoint.
    """

    def __init__(  # noqa: PLR0913 - made in one place, from one message
        self,
        *,
        executor_id: int,
        role: Role,
        index: int,
        cluster_spec: Mapping[str, list[str]],
        default_fs: str = "file://",
        working_dir: str | None = None,
        mgr: FeedHub | None = None,
        input_mode: InputMode = InputMode.TENSORFLOW,
        num_epochs: int = 1,
        data: Mapping[str, Any] | None = None,
        run_id: str = "",
        log_dir: str | None = None,
        instances: int = 0,
        restart_count: int = 0,
        first_epoch: int = 0,
        release: Callable[[], None] = lambda: None,
        report: Callable[[Mapping[str, Any]], None] = lambda message: None,
    ) -> None:
        self.executor_id = executor_id
        self.worker_num = executor_id
        self.job_name = str(role)
        self.task_index = index
        self.cluster_spec = {name: list(hosts) for name, hosts in cluster_spec.items()}
        self.instances = instances
        if instances:
            self.cluster_spec = {}
        self.num_workers = instances or sum(len(hosts) for name, hosts in cluster_spec.items() if Role(name).is_fed)
        self.defaultFS = default_fs
        self.working_dir = working_dir or str(Path.cwd())
        self.mgr = mgr
        self.tmp_socket = None
        self.input_mode = input_mode
        self.num_epochs = num_epochs
        self.data: dict[str, Any] = dict(data or {})
        self.run_id = run_id
        self.log_dir = log_dir
        self.restart_count = restart_count
        self.first_epoch = first_epoch
        self._fetched: tempfile.TemporaryDirectory[str] | None = None
        self._release = release
        self._report = report

    def __repr__(self) -> str:
        return f"TFNodeContext({self.job_name}:{self.task_index}, executor_id={self.executor_id}, cluster_spec={self.cluster_spec})"

    @property
    def is_chief(self) -> bool:
        """Whether this node writes what is written once: the chief or master, or worker 0 when there is neither.

        Independent instances know nothing of each other, so each is its own chief.
        """
        if self.instances:
            return True
        if Role.CHIEF in self.cluster_spec or Role.MASTER in self.cluster_spec:
            return self.job_name in (Role.CHIEF, Role.MASTER)
        return self.job_name == Role.WORKER and self.task_index == 0

    @property
    def data_path(self) -> str | None:
        """The `data.path` of the job, absolute or with a scheme; None when the job names none."""
        path = self.data.get("path")
        return None if path is None else str(path)

    @property
    def stop_requested(self) -> bool:
        """Whether somebody asked a cluster that is fed a stream to stop; the rows that are under way still come."""
        return self.mgr is not None and self.mgr.stop_requested

    @property
    def worker_index(self) -> int:
        """Position among the nodes that train: chief or master first, then the workers; for sharding files.

        Raises:
            ClusterStateError: this node does not train (ps, evaluator).
        """
        if not Role(self.job_name).is_fed:
            raise ClusterStateError(f"{self.job_name}:{self.task_index} does not train, so it has no place among the workers")
        before = (
            sum(len(self.cluster_spec.get(role, [])) for role in (Role.CHIEF, Role.MASTER)) if self.job_name == Role.WORKER else 0
        )
        return before + self.task_index

    def absolute_path(self, path: str) -> str:
        """`path` with a scheme: as given when it has one, else against the default file system (2022 rules)."""
        return absolute_path(path, default_fs=self.defaultFS, working_dir=self.working_dir)

    def get_data_feed(
        self,
        train_mode: bool = True,
        qname_in: str = "input",
        qname_out: str = "output",
        input_mapping: Mapping[str, str] | None = None,
    ) -> DataFeed:
        """The rows that Spark sends to this node.

        Raises:
            ClusterStateError: nothing is fed to this node.
        """
        from tfos_core.feed.datafeed import DataFeed

        if self.mgr is None:
            raise ClusterStateError(
                f"{self.job_name}:{self.task_index} gets no rows from Spark (input mode {self.input_mode})",
                "Use input_mode spark, and read the feed on chief, master and worker nodes only.",
            )
        mapping = input_mapping if input_mapping is not None else self.data.get("input_mapping")
        return DataFeed(self.mgr, train_mode, qname_in, qname_out, dict(mapping) if mapping else None)

    def dataset(  # noqa: PLR0913 - all but the first have defaults
        self,
        batch_size: int,
        *,
        path: str | None = None,
        format: str | None = None,  # noqa: A002 - as in the spec
        columns: Sequence[str] | None = None,
        input_mapping: Mapping[str, str] | None = None,
        options: Mapping[str, str] | None = None,
        shuffle: int = 0,
        seed: int = 0,
        drop_remainder: bool = False,
        shard: bool = True,
    ) -> Any:
        """A `tf.data.Dataset` of this node's share of Parquet or TFRecord files, read straight from storage; one pass is one epoch.

        What is left out is as the job's `data` says. Every row is on exactly one of the nodes that train.

        Args:
            batch_size: rows of a batch; with a tf.distribute strategy the global batch.
            path: a file, a folder or a pattern, by the rules of `absolute_path`.
            format: `parquet` or `tfrecord`.
            columns: which, in this order: one is a tensor, several are a tuple of tensors.
            input_mapping: column -> tensor; makes every batch a dict.
            options: of TFRecords.
            shuffle: rows that are mixed with each other, anew in every pass; 0 (the default) keeps the order of the files.
            seed: of the order; the same on all nodes. 0 by default.
            drop_remainder: drop the short batch at the end of a pass.
            shard: False reads everything on this node, such as data to judge by.

        Raises:
            ConfigError: there is no data, or an argument can not be.
            DataError: a file can not be read, or holds what a tensor can not.
            ClusterStateError: a share is wanted on a node that does not train.
        """
        from tfos_core.direct import make_dataset
        from tfos_core.direct.node import request_of

        request = request_of(
            self,
            path=path,
            format=format,
            columns=columns,
            input_mapping=input_mapping,
            options=options,
            shuffle=shuffle,
            seed=seed,
            shard=shard,
        )
        return make_dataset(request, batch_size, drop_remainder=drop_remainder)

    def publish(self, local: str, remote: str) -> str:
        """Copy a local file or folder to `remote`, by the rules of `absolute_path`; returns where it is.

        What was there is replaced. Nobody sees a part of it, where the file system can rename. One node should do this, mostly the
        chief.

        Raises:
            ConfigError: there is nothing at `local`.
            OSError: it can not be written.
        """
        from tfos_core.storage import publish

        return publish(local, self.absolute_path(remote))

    def fetch(self, remote: str, local: str | None = None) -> str:
        """Copy a file or folder to this machine and return its path here, for TensorFlow, which reads local paths only.

        Args:
            remote: by the rules of `absolute_path`; what is on this machine already is not copied when `local` is None.
            local: where to; None is a folder that is gone when the program ends.

        Raises:
            ConfigError: there is nothing at `remote`.
            OSError: it can not be read.
        """
        from tfos_core.storage import fetch

        source = self.absolute_path(remote)
        if local is not None:
            return fetch(source, local)
        if source.startswith("file:"):
            return local_path(source)
        self._fetched = self._fetched or tempfile.TemporaryDirectory(prefix="tfos-fetched-", dir=Path.cwd())
        return fetch(source, Path(tempfile.mkdtemp(dir=self._fetched.name)) / posixpath.basename(source.rstrip("/")))

    def checkpoints(self, folder: str, *, keep: int = 2, run: str | None = None, **objects: Any) -> Checkpoints:
        """What the program has learned so far, for a restarted job to go on from; see `tfos_core.checkpoint`.

        Args:
            folder: a path or URL that all nodes reach, by the rules of `absolute_path`; each run has its own folder below it.
            keep: how many checkpoints stay; 2 by default.
            run: the run whose checkpoints these are; by default this one.
            objects: what is saved, by name, such as `model=model`.

        Raises:
            ConfigError: nothing to save, or a folder that can not be reached.
        """
        from tfos_core.checkpoint import Checkpoints

        base = posixpath.join(self.absolute_path(folder), run or self.run_id)
        return Checkpoints(base, objects, keep=keep, is_chief=self.is_chief, report=self._report)

    def release_port(self) -> None:
        """Free the port that is reserved for this node, so that a server that does not set SO_REUSEPORT can bind it."""
        self._release()

    def start_cluster_server(self, num_gpus: int = 1, rdma: bool = False) -> tuple[Any, Any]:
        """Start a `tf.distribute.Server` for this node's role; returns (cluster spec, server) as in 2022.

        A node that then calls `server.join()` serves the others and is stopped when they are done. So is one that started a server
        in `InputMode.TENSORFLOW` while another node trains without one, as the coordinator of ParameterServerStrategy does. A node
        that is fed, or whose peers all have servers (between-graph training), ends when its function returns.

        `num_gpus` and `rdma` are accepted for programs of 2022; devices are chosen before TensorFlow starts.

        Raises:
            ClusterStateError: on an evaluator, which is not part of the training cluster.
        """
        if self.job_name == Role.EVALUATOR:
            raise ClusterStateError(
                f"{self.job_name}:{self.task_index} is not part of the training cluster, so it has no server to start",
                "Start servers on the other nodes only; an evaluator reads the chief's checkpoints.",
            )
        import tensorflow as tf

        self._report({"op": "node.serving"})
        spec = tf.train.ClusterSpec(self.cluster_spec)
        return spec, tf.distribute.Server(spec, job_name=self.job_name, task_index=self.task_index, protocol="grpc")

    def export_saved_model(self, model: Any, export_dir: str, **options: Any) -> str | None:
        """Write `model` as a SavedModel to `export_dir`, complete or not at all; returns the path on the chief, None elsewhere.

        With MultiWorkerMirroredStrategy every node has to call this, because saving may gather variables from all of them; only
        the chief's copy is kept. An existing export of the same name is replaced.

        Args:
            model: a Keras model (either Keras) or a `tf.Module`.
            export_dir: a path or URL, by the rules of `absolute_path`.
            options: passed on to the function that saves (`signatures`, ...).

        Raises:
            ConfigError: there is no file system for `export_dir`.
            OSError: it can not be written.
        """
        from tfos_core.export import export_saved_model

        path = export_saved_model(model, self.absolute_path(export_dir), keep=self.is_chief, options=options)
        if path is not None:
            self._report({"op": "node.export", "path": path})
        return path
