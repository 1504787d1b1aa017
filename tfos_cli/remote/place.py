"""What is known of a run in cluster deploy mode before it starts, and kept beside its record on this machine."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from tfos_cli.remote.hadoop_conf import conf_folder, default_filesystem, resource_manager, user_name
from tfos_cli.runs import REMOTE_FILE
from tfos_cli.spec.masters import MasterKind, master_kind
from tfos_core.errors import ConfigError
from tfos_core.json_text import parse_json
from tfos_core.private_files import write_private
from tfos_core.uplink.private import PRIVATE_FILE

if TYPE_CHECKING:
    from tfos_cli.spec.model import JobSpec

__all__ = ("RemoteRun", "private_path", "record_place")

#: Below the folder that both sides reach.
_RECORDS = ".tfos/runs"
_YARN_STAGING = "spark.yarn.stagingDir"
_KUBERNETES_UPLOADS = "spark.kubernetes.file.upload.path"
_KUBERNETES_CLIENT = re.compile(r"spark\.kubernetes\.(context|trust\.certificates|authenticate\.submission\.\w+File)\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteRun:
    """One run in cluster deploy mode; nothing in it is secret.

    Attributes:
        record: the URL of the folder that the driver writes and this machine reads.
        manager: who runs the driver.
        master: as given to Spark.
        conf: the folder with Hadoop's settings, empty when there is none.
        spark_home: whose jars are the client of the manager.
        towards: a host of the cluster, to find the address of this machine that it sees; empty when unknown.
        client: Spark properties that say how to log in at Kubernetes; files and names, no secrets.
    """

    record: str
    manager: MasterKind
    master: str
    conf: str = ""
    spark_home: str = ""
    towards: str = ""
    client: Mapping[str, str] = field(default_factory=dict)

    def write(self, folder: Path) -> None:
        """Keep it in the folder of the run."""
        write_private(folder / REMOTE_FILE, json.dumps(asdict(self), indent=1) + "\n")

    @classmethod
    def read(cls, folder: Path) -> RemoteRun | None:
        """What was kept in the folder of a run; None for a run in client mode.

        Raises:
            ConfigError: it is damaged.
        """
        try:
            data = parse_json((folder / REMOTE_FILE).read_text(encoding="utf-8"))
            return cls(**data | {"manager": MasterKind(data["manager"])})
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError, KeyError) as exc:
            raise ConfigError(f"{folder / REMOTE_FILE} can not be read: {exc}", "Remove the folder of that run.") from exc

    @classmethod
    def of(cls, spec: JobSpec, run_id: str, environ: Mapping[str, str], *, spark_home: Path) -> RemoteRun | None:
        """What is known of a run of this spec; None in client mode. Reads Hadoop's settings, writes nothing.

        Raises:
            ConfigError: there is no place for the record.
        """
        if spec.spark.deploy_mode != "cluster":
            return None
        kind = master_kind(spec.spark.master)
        folder = conf_folder(environ)
        master = spec.spark.master or ""
        towards = resource_manager(folder) if kind is MasterKind.YARN else _host_of(master)
        return cls(
            record=record_place(spec, run_id, environ),
            manager=kind,
            master=master,
            conf=str(folder or ""),
            spark_home=str(spark_home),
            towards=towards or "",
            client={name: value for name, value in spec.spark.conf.items() if _KUBERNETES_CLIENT.match(name)},
        )


def private_path(run_folder: Path) -> Path:
    """The file for the driver's eyes, on this machine; there until it is on the cluster."""
    return run_folder / "ship" / PRIVATE_FILE


def record_place(spec: JobSpec, run_id: str, environ: Mapping[str, str]) -> str:
    """The URL of the folder for the record of a run: where Spark puts the files of the application, below `.tfos/runs`.

    On YARN that is `spark.yarn.stagingDir`, by default the user's folder on the default file system; on Kubernetes
    `spark.kubernetes.file.upload.path`.

    Raises:
        ConfigError: Kubernetes has no such default, and the spec names none.
    """
    conf = spec.spark.conf
    if master_kind(spec.spark.master) is MasterKind.KUBERNETES:
        base = conf.get(_KUBERNETES_UPLOADS)
        if not base:
            raise ConfigError(
                f"cluster deploy mode on Kubernetes needs spark.conf.{_KUBERNETES_UPLOADS}",
                "Set it to a folder that the driver's pod and this machine both reach, such as s3a://bucket/spark.",
            )
    else:
        filesystem = default_filesystem(conf_folder(environ))
        user = user_name(environ, conf)
        home = str(Path.home()) if filesystem.startswith("file:") else f"/user/{user}"
        base = conf.get(_YARN_STAGING) or f"{filesystem.rstrip('/')}{home}"
        if "://" not in base and not base.startswith("file:"):
            base = f"{filesystem.rstrip('/')}/{base.lstrip('/')}"
        if base.startswith("file:"):
            base = "file:///" + base.removeprefix("file:").lstrip("/")
    return f"{base.rstrip('/')}/{_RECORDS}/{run_id}"


def _host_of(master: str) -> str:
    """The host of `k8s://https://host:port`."""
    rest = master.removeprefix("k8s://").partition("://")[2] or master.removeprefix("k8s://")
    authority = rest.partition("/")[0]
    host = authority.rpartition(":")[0] if ":" in authority else authority
    return host.strip("[]")
