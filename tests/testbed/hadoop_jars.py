"""Hadoop's jars: from Maven, or else those that an old pyspark brings along. Kept for the next run of the tests."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

__all__ = ("VERSION", "NoHadoopError", "hadoop_jars")

VERSION = "3.4.2"
POM = Path(__file__).parent / "hadoop" / "pom.xml"
DOWNLOAD_S = 540
#: The last sdist with Hadoop 2.7's server side in it.
OLD_PYSPARK = "2.4.8"
NEEDED = "hadoop-hdfs-*.jar"


class NoHadoopError(Exception):
    """The jars can not be had here, and why."""


def hadoop_jars(*, yarn: bool = False) -> Path:
    """The folder with the jars of HDFS, and with `yarn` also of YARN, which only Maven has.

    Raises:
        NoHadoopError: neither Maven's repository nor the package index gave them.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tfos-tests"
    reasons = []
    places = ((f"hadoop-yarn-{VERSION}", _from_maven), (f"hadoop-of-pyspark-{OLD_PYSPARK}", _from_pyspark))
    for name, fetch in places[:1] if yarn else places:
        folder = cache / name
        if any(folder.glob(NEEDED)):
            return folder
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache) as scratch:
            try:
                fetch(Path(scratch) / "jars")
                (Path(scratch) / "jars").rename(folder)
            except (OSError, subprocess.SubprocessError, tarfile.TarError) as exc:
                reasons.append(f"{fetch.__name__.removeprefix('_from_')}: {exc}")
                continue
        return folder
    raise NoHadoopError(f"no Hadoop jars: {'; '.join(reasons)}")


def _from_maven(target: Path) -> None:
    program = shutil.which("mvn")
    if program is None:
        raise FileNotFoundError("there is no mvn")
    goal = ["dependency:copy-dependencies", f"-Dhadoop.version={VERSION}", "-DincludeScope=runtime", f"-DoutputDirectory={target}"]
    # A copy, because Maven writes beside the pom.
    pom = target.parent / "pom.xml"
    shutil.copy(POM, pom)
    subprocess.run([program, "-q", "-B", "-f", str(pom), *goal], check=True, timeout=DOWNLOAD_S, capture_output=True)


def _from_pyspark(target: Path) -> None:
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", ":all:", "--no-build-isolation"]
    subprocess.run(
        [*command, "-d", str(target.parent), f"pyspark=={OLD_PYSPARK}"], check=True, timeout=DOWNLOAD_S, capture_output=True
    )
    (sdist,) = target.parent.glob("pyspark-*.tar.gz")
    target.mkdir()
    with tarfile.open(sdist) as archive:
        for member in archive:
            if member.isfile() and "/deps/jars/" in member.name:
                source = archive.extractfile(member)
                assert source is not None
                with (target / Path(member.name).name).open("wb") as file:
                    shutil.copyfileobj(source, file)
