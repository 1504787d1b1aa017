"""What goes with a stream and what does not."""

from __future__ import annotations

from tfos_cli.spec.checks.finding import Case, Findings
from tfos_cli.spec.checks.inputs import local_path
from tfos_cli.spec.masters import MasterKind

__all__ = ("RULES",)


def folder_exists(case: Case) -> Findings:
    """A folder that is watched has to be there, and on a cluster also on the other machines."""
    stream = case.spec.stream
    if stream is None or stream.source != "files" or not stream.path:
        return
    path = local_path(case, stream.path)
    if path is None or (stream.path.startswith("/") and case.kind in (MasterKind.YARN, MasterKind.KUBERNETES)):
        return  # an absolute path without a scheme is on the default file system there, mostly HDFS
    if not path.is_dir():
        hint = "Make it; paths are relative to the spec, and hdfs:// or another scheme names one that is not on this machine."
        yield case.error("stream-missing", "stream.path", f"there is no folder {path} to watch", hint)
    elif case.is_shared:
        message = f"{path} is on this machine, and executors run on others"
        fix = "Use storage that all of them see, or ignore this if they mount it too."
        yield case.warning("stream-local", "stream.path", message, fix)


def fits_the_job(case: Case) -> Findings:
    """A stream passes once, in batches that nobody can count beforehand."""
    spec = case.spec
    if spec.stream is None:
        return
    if spec.num_epochs > 1:
        message = f"num_epochs is {spec.num_epochs}, and a stream passes once"
        yield case.error("stream-epochs", "num_epochs", message, "Leave num_epochs out, or train on files that are there (data).")
    if spec.equal_steps:
        message = "equal_steps is about data whose rows can be counted, and a stream has no end"
        yield case.error("stream-equal-steps", "equal_steps", message, "Leave equal_steps out.")
    if spec.restart.max_restarts:
        message = "a streaming job is not restarted by restart.max_restarts"
        fix = "Set stream.checkpoint and submit it again: it goes on where it was."
        yield case.error("stream-restart", "restart.max_restarts", message, fix)
    if spec.infer is not None:
        yield case.error(
            "stream-infer", "infer", "a stream trains, and infer answers rows that are there", "Leave one of them out."
        )
    if spec.stream.source == "socket" and spec.stream.checkpoint is not None:
        message = "lines from a socket can not be read again, so that a later run can not go on where this one was"
        yield case.warning("stream-checkpoint", "stream.checkpoint", message, "Leave stream.checkpoint out.")


RULES = (folder_exists, fits_the_job)
