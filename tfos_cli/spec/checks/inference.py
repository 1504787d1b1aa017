"""What a spec runs: the program of a training, or a model or program over rows (`infer`)."""

from __future__ import annotations

from tfos_cli.spec.checks.finding import Case, Findings

__all__ = ("RULES",)

#: Keys of `infer` that are about a saved model; the entrypoint does all of it in code.
_MODEL_KEYS = (
    "signature_def_key",
    "tag_set",
    "input_mapping",
    "output_mapping",
    "batch_size",
    "keep",
    "binary_outputs",
    "bad_rows",
)
_ENTRYPOINT = "Set entrypoint, as in apps/train.py:main_fun"


def something_runs(case: Case) -> Findings:
    """A program, or a saved model, depending on the command."""
    spec, verb = case.spec, case.resolved.verb
    if verb == "infer" and spec.infer is None:
        fix = "Add infer: {export_dir: models/mine, output: {path: predictions}}, or use 'tfos train'."
        yield case.error("infer-required", "infer", "the spec has no section infer, which names the model and the output", fix)
        return
    if spec.entrypoint is not None or case.resolved.model_inference is not None:
        return
    if verb == "train" and spec.infer is not None and spec.infer.export_dir is not None:
        message = "there is no entrypoint to train with: the spec describes inference with a saved model"
        yield case.error("entrypoint-required", "entrypoint", message, "Use 'tfos infer', or set entrypoint.")
    elif spec.infer is not None:
        message = "inference needs infer.export_dir (a saved model) or entrypoint (a program), and the spec has neither"
        yield case.error("entrypoint-required", "infer.export_dir", message, f"Set infer.export_dir. {_ENTRYPOINT} for a program.")
    else:
        yield case.error(
            "entrypoint-required", "entrypoint", "the spec has no entrypoint, the program that runs", f"{_ENTRYPOINT}."
        )


def inference_fits(case: Case) -> Findings:
    """Inference reads data with Spark; what belongs to one way of it does nothing in the other."""
    infer, verb = case.spec.infer, case.resolved.verb
    if infer is None or verb == "train":
        return
    if case.spec.data is None and case.spec.stream is None:
        yield case.error(
            "data-required", "data", "there are no rows for the model: data is not set", "Set data.path or data.source."
        )
    if infer.export_dir is None:
        yield from _program(case)
        return
    twice = sorted({name for name in infer.keep if infer.keep.count(name) > 1})
    if twice:
        yield case.error("infer-columns", "infer.keep", f"infer.keep names {twice[0]!r} twice", "Name every column once.")
    columns = [*infer.keep, *infer.output_mapping.values()]
    double = sorted({name for name in columns if columns.count(name) > 1} - set(twice))
    if double:
        message = f"the output would have two columns {double[0]!r}"
        yield case.error("infer-columns", "infer.output_mapping", message, "Give each output a column of its own.")
    if infer.bad_rows is not None and infer.bad_rows.rstrip("/") == infer.output.path.rstrip("/"):
        yield case.error(
            "infer-paths", "infer.bad_rows", "infer.bad_rows and infer.output.path are the same folder", "Use another folder."
        )
    if case.spec.restart.max_restarts and verb == "infer":
        message = "restart.max_restarts is about training, and 'tfos infer' does not start again by itself"
        yield case.warning("infer-restart", "restart.max_restarts", message, "Leave restart out.")
    if case.spec.environment.secrets and case.resolved.model_inference is not None:
        message = "with a saved model there are no nodes, so that secrets reach the driver only"
        yield case.warning(
            "infer-secrets", "environment.secrets", message, "Leave environment.secrets out if the driver needs none."
        )


def _program(case: Case) -> Findings:
    """The entrypoint answers rows: it has to be fed, and what is about models does nothing."""
    spec, infer = case.spec, case.spec.infer
    if spec.entrypoint is None or infer is None:
        return
    for key in _MODEL_KEYS:
        if getattr(infer, key) != type(infer).model_fields[key].get_default(call_default_factory=True):
            message = f"infer.{key} is about a saved model, and without infer.export_dir the entrypoint answers the rows"
            fix = f"Set infer.export_dir, or take infer.{key} out and do it in the entrypoint."
            yield case.error("infer-program", f"infer.{key}", message, fix)
    if spec.is_parallel:
        message = "instances of a parallel job are not fed, so that an entrypoint there gets no rows to answer"
        yield case.error("infer-program", "mode", message, "Set mode: cluster.")
    elif spec.input_mode != "spark":
        message = "an entrypoint that answers rows is fed by Spark, and input_mode is tensorflow"
        yield case.error("infer-program", "input_mode", message, "Set input_mode: spark.")


RULES = (something_runs, inference_fits)
