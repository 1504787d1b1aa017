"""Settings of Hadoop's clients on this machine, read from their XML files without Java."""

from __future__ import annotations

import getpass
from collections.abc import Mapping
from pathlib import Path
from xml.etree import ElementTree

from tfos_core.errors import EnvironmentCheckError

__all__ = ("CONF_VARIABLES", "conf_folder", "default_filesystem", "resource_manager", "setting", "user_name")

CONF_VARIABLES = ("HADOOP_CONF_DIR", "YARN_CONF_DIR")
_LOCAL = "file:///"


def conf_folder(environ: Mapping[str, str]) -> Path | None:
    """The folder with Hadoop's settings; None when neither variable names one."""
    return next((Path(environ[name]) for name in CONF_VARIABLES if environ.get(name)), None)


def require_conf(environ: Mapping[str, str]) -> Path:
    """The folder with Hadoop's settings, for a job on YARN.

    Raises:
        EnvironmentCheckError: neither variable is set, or the folder has no settings in it.
    """
    folder = conf_folder(environ)
    if folder is None:
        raise EnvironmentCheckError(
            "HADOOP_CONF_DIR is not set (nor YARN_CONF_DIR), and without it Spark finds no YARN",
            "Set HADOOP_CONF_DIR to the folder with the cluster's yarn-site.xml and core-site.xml.",
        )
    if not any((folder / name).is_file() for name in ("yarn-site.xml", "core-site.xml")):
        raise EnvironmentCheckError(
            f"HADOOP_CONF_DIR is {folder}, which has neither yarn-site.xml nor core-site.xml",
            "Copy both from a host of the cluster, or name the folder that has them.",
        )
    return folder


def setting(folder: Path | None, name: str) -> str | None:
    """A property of `core-site.xml`, `hdfs-site.xml` or `yarn-site.xml`; None when it is not there or not readable."""
    if folder is None:
        return None
    found = None
    for file in ("core-site.xml", "hdfs-site.xml", "yarn-site.xml"):
        try:
            # The user's own configuration, which Hadoop's clients trust as well.
            root = ElementTree.parse(folder / file).getroot()  # noqa: S314
        except (OSError, ElementTree.ParseError):
            continue
        for entry in root.iter("property"):
            if (entry.findtext("name") or "").strip() == name:
                found = (entry.findtext("value") or "").strip()
    return found


def default_filesystem(folder: Path | None) -> str:
    """`fs.defaultFS`; local files when nothing says otherwise."""
    return setting(folder, "fs.defaultFS") or _LOCAL


def resource_manager(folder: Path | None) -> str | None:
    """The host of YARN's ResourceManager, or of one of several; None when the settings do not say it."""
    ids = (setting(folder, "yarn.resourcemanager.ha.rm-ids") or "").split(",")
    for suffix in ("", *(f".{each.strip()}" for each in ids if each.strip())):
        host = setting(folder, f"yarn.resourcemanager.hostname{suffix}")
        address = setting(folder, f"yarn.resourcemanager.address{suffix}")
        found = (address or "").rpartition(":")[0] or host
        if found and "$" not in found:
            return found
    return None


def user_name(environ: Mapping[str, str], conf: Mapping[str, str]) -> str:
    """Who Hadoop takes the submitter for: the principal of Spark's settings, `HADOOP_USER_NAME`, or the user of this machine."""
    principal = conf.get("spark.kerberos.principal") or conf.get("spark.yarn.principal") or ""
    return principal.partition("@")[0].partition("/")[0] or environ.get("HADOOP_USER_NAME") or getpass.getuser()
