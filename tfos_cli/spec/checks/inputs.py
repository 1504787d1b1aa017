"""What is read: data, streams, and local files that travel with the job."""

from __future__ import annotations

import glob
import re
from pathlib import Path

from tfos_cli.spec.checks.finding import Case, Findings
from tfos_cli.spec.masters import MasterKind

__all__ = ("RULES", "local_path")

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")
_MAGIC = re.compile(r"[*?\[{]")


def local_path(case: Case, text: str) -> Path | None:
    """The file of this machine that a path of the spec names, or None for one with another scheme than `file:`."""
    if text.startswith("file:/"):
        return Path("/" + re.sub(r"^file:(//(localhost)?)?/+", "", text))
    return None if _SCHEME.match(text) else case.file(text)


def needs_rows(case: Case) -> Findings:
    """In spark mode rows come from one place; in tensorflow mode nodes read for themselves."""
    data, stream = case.spec.data, case.spec.stream
    sources = [
        name
        for name, value in (
            ("data.path", data.path if data else None),
            ("data.source", data.source if data else None),
            ("stream", stream),
        )
        if value is not None
    ]
    feeds = case.spec.input_mode == "spark" and not case.spec.is_parallel
    if feeds and not sources and (case.spec.infer is None or case.resolved.verb == "train"):
        message = "input_mode is spark, and neither data.path nor data.source nor stream says which rows Spark feeds"
        yield case.error("data-required", "data", message, "Set data.path, or input_mode: tensorflow if nodes read for themselves.")
    if len(sources) > 1:
        message = f"rows come from one place, and the spec names {' and '.join(sources)}"
        yield case.error("one-source", sources[-1], message, f"Keep one of {', '.join(sources)}.")
    if case.spec.input_mode == "tensorflow" and data is not None and case.resolved.model_inference is None:
        for field in ("transform", "source"):
            if getattr(data, field) is not None:
                message = f"data.{field} runs on the driver for rows that Spark feeds, and in input_mode tensorflow it feeds none"
                yield case.error("needs-spark-mode", f"data.{field}", message, f"Set input_mode: spark, or leave data.{field} out.")
    if case.spec.equal_steps and case.spec.input_mode == "tensorflow":
        message = "equal_steps is about rows that Spark feeds, and in input_mode tensorflow it does nothing"
        yield case.warning("needs-spark-mode", "equal_steps", message, "Leave equal_steps out.")


def cache_is_of_use(case: Case) -> Findings:
    """Nodes keep rows that Spark feeds, and more than once."""
    data = case.spec.data
    if data is None or data.cache == "none":
        return
    if case.spec.input_mode == "tensorflow" or case.spec.is_parallel:
        message = "data.cache keeps rows that Spark feeds, and here nodes read for themselves"
        yield case.error(
            "needs-spark-mode", "data.cache", message, "Set input_mode: spark, or use tf.data's cache() in the function."
        )
    elif case.spec.infer is not None and case.resolved.verb != "train":
        message = "data.cache keeps rows for later epochs, and inference has one"
        yield case.warning("cache-unused", "data.cache", message, "Leave data.cache out.")
    elif case.spec.num_epochs < 2:
        message = f"data.cache keeps rows for later epochs, and num_epochs is {case.spec.num_epochs}"
        yield case.warning("cache-unused", "data.cache", message, "Leave data.cache out, or raise num_epochs.")


def mapping_fits_columns(case: Case) -> Findings:
    """What is mapped has to be read."""
    data = case.spec.data
    if data is None or not data.input_mapping or data.columns is None or data.transform or data.source:
        return
    missing = sorted(set(data.input_mapping) - set(data.columns))
    if missing:
        message = f"data.input_mapping names {missing[0]!r}, and data.columns leaves that column out"
        yield case.error("mapped-column", "data.input_mapping", message, "Add it to data.columns, or leave data.columns out.")


def stream_is_complete(case: Case) -> Findings:
    """Streams are fed by Spark, and each kind needs its keys."""
    stream = case.spec.stream
    if stream is None:
        return
    if case.spec.input_mode != "spark":
        yield case.error(
            "stream-mode", "stream", "a stream is fed by Spark, and input_mode is tensorflow", "Set input_mode: spark."
        )
    needed = ("path",) if stream.source == "files" else ("host", "port")
    for field in needed:
        if getattr(stream, field) is None:
            message = f"a stream of {stream.source} needs stream.{field}"
            yield case.error("stream-incomplete", f"stream.{field}", message, f"Set stream.{field}.")


def data_exists(case: Case) -> Findings:
    """Local data has to be there, and on a cluster also on the other machines."""
    data = case.spec.data
    if data is None or data.path is None:
        return
    if not data.path.strip():
        yield case.error("data-missing", "data.path", "data.path is empty", "Name a file, a folder, a glob or a URL.")
        return
    path = local_path(case, data.path)
    if path is None or (data.path.startswith("/") and case.kind in (MasterKind.YARN, MasterKind.KUBERNETES)):
        return  # an absolute path without a scheme is on the default file system there, mostly HDFS
    if not _exists(path):
        hint = "Paths are relative to the spec; write hdfs:// or another scheme for data that is not on this machine."
        yield case.error("data-missing", "data.path", f"there is no data at {path}", hint)
    elif case.is_shared:
        message = f"{path} is on this machine, and executors run on others"
        yield case.warning(
            "data-local", "data.path", message, "Use storage that all of them see, or ignore this if they mount it too."
        )


def format_is_known(case: Case) -> Findings:
    """Spark has to know how to read a path that it feeds."""
    data = case.spec.data
    if data is None or data.path is None or case.resolved.data_format is not None:
        return
    if case.spec.input_mode != "spark" and case.resolved.model_inference is None:
        return
    message = f"the ending of {data.path!r} does not say its format"
    yield case.error("format-unknown", "data.format", message, "Set data.format: csv, json, parquet, orc, text or tfrecord.")


def shipped_files(case: Case) -> Findings:
    """Files that spark-submit copies have to be there."""
    spark = case.spec.spark
    for field in ("jars", "py_files", "files", "archives"):
        for text in getattr(spark, field):
            path = local_path(case, text.partition("#")[0])
            if path is not None and not _exists(path):
                yield case.error("file-missing", f"spark.{field}", f"there is no file {path}", "Paths are relative to the spec.")


def _exists(path: Path) -> bool:
    """Whether a path, or anything that matches it as a glob, is there."""
    try:
        if path.exists():
            return True
        # Hadoop's globs know {a,b} as well, which Python's do not: take those for any name.
        pattern = re.sub(r"\{[^{}]*\}", "*", str(path))
        return _MAGIC.search(str(path)) is not None and any(True for _ in glob.iglob(pattern))  # noqa: PTH207 - Path.glob takes no absolute pattern
    except (OSError, ValueError, RecursionError, re.error):
        return False


RULES = (needs_rows, cache_is_of_use, mapping_fits_columns, stream_is_complete, data_exists, format_is_known, shipped_files)
