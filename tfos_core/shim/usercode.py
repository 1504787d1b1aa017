"""Everything of the user's that runs on the driver: importing the entrypoint, making its arguments, loading its data."""

from __future__ import annotations

import argparse
import importlib
import traceback
from collections.abc import Callable, Mapping
from typing import Any

from tfos_core.errors import ConfigError, TfosError
from tfos_core.jobplan import DataPlan, FunctionRef
from tfos_core.shim.data import fed_columns, read_data
from tfos_core.shim.errors import UserCodeError

__all__ = ("build_args", "call", "load_data", "load_fed_data", "load_function")

Function = Callable[..., Any]


def load_function(ref: FunctionRef) -> Function:
    """Import a function of the user's.

    Raises:
        UserCodeError: the module can not be imported.
        ConfigError: the module has no such function.
    """
    module = call(f"importing {ref.module} for {ref.shown!r}", importlib.import_module, ref.module)
    function = getattr(module, ref.function, None)
    if function is None:
        names = sorted(name for name, value in vars(module).items() if callable(value) and not name.startswith("_"))
        raise ConfigError(
            f"{ref.shown!r}: module {ref.module} has no function {ref.function!r}",
            f"It has {', '.join(names[:20])}." if names else f"Define 'def {ref.function}(args, ctx)' in it.",
        )
    if not callable(function):
        raise ConfigError(f"{ref.shown!r} is a {type(function).__name__}, not a function", "Name a function after the colon.")
    loaded: Function = function
    return loaded


def build_args(args: Mapping[str, Any] | tuple[str, ...]) -> argparse.Namespace | list[str]:
    """What the user's functions get as `args`: a namespace for a mapping, an argv for a list."""
    return argparse.Namespace(**args) if isinstance(args, Mapping) else list(args)


def load_data(spark: Any, plan: DataPlan, args: Any) -> Any:
    """The DataFrame or RDD of a plan: from `source`, or read from `path` and then passed through `transform`.

    Raises:
        UserCodeError: `source` or `transform` raised or gave None.
        ConfigError: the path can not be read in that format, or has no such columns.
        StorageError: its file system does not answer.
    """
    if plan.source is not None:
        data = _checked(plan.source, call(f"source {plan.source.shown!r}", load_function(plan.source), spark, args))
        return data.select(*plan.columns) if plan.columns and hasattr(data, "select") else data
    data = read_data(spark, plan)
    if plan.transform is not None:
        function = load_function(plan.transform)
        return _checked(plan.transform, call(f"transform {plan.transform.shown!r}", function, spark, data, args))
    return data


def load_fed_data(spark: Any, plan: DataPlan, args: Any) -> Any:
    """The same, with those columns of a DataFrame only that `input_mapping` names, when it does.

    Raises:
        UserCodeError, ConfigError, StorageError: as `load_data`.
    """
    return fed_columns(load_data(spark, plan, args), plan.input_mapping)


def call(what: str, function: Function, *args: Any) -> Any:
    """Call code of the user's; whatever it raises, `sys.exit` included, becomes a UserCodeError with the traceback."""
    try:
        return function(*args)
    except TfosError:
        raise
    except (Exception, SystemExit) as exc:
        text = "".join(traceback.format_exception(exc.with_traceback(_below_here(exc))))
        raise UserCodeError(f"{what} raised {type(exc).__name__}: {exc}", None, text) from exc


def _checked(ref: FunctionRef, data: Any) -> Any:
    if data is None:
        raise UserCodeError(f"{ref.shown!r} returned None instead of a DataFrame or an RDD", "End the function with 'return'.")
    return data


def _below_here(exc: BaseException) -> Any:
    """The traceback without our own frame at its top."""
    return exc.__traceback__.tb_next if exc.__traceback__ else None
