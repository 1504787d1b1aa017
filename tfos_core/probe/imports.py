"""Whether modules can be imported, tried in a fresh interpreter: TensorFlow may crash the process that imports it.

`python -m tfos_core.probe.imports MODULE:FUNCTION...` writes one JSON line per module to stdout.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ("TENSORFLOW", "try_imports")

TENSORFLOW = "tensorflow"
#: For all of them together, in seconds: TensorFlow takes a minute from a cold network disk.
TIMEOUT_S = 180.0
#: What marks our lines among whatever the modules print.
_MARK = "tfos-import "


def try_imports(
    names: Sequence[str], environ: Mapping[str, str] = os.environ, *, timeout: float = TIMEOUT_S
) -> dict[str, dict[str, Any]]:
    """Import modules one after the other: name -> `{"error": "", "version": ..., "seconds": ...}`; an empty error is success.

    Args:
        names: `module`, or `module:function`, which has to be there and callable.
    """
    if not names:
        return {}
    path = os.pathsep.join(entry for entry in sys.path if entry)
    # No GPU is taken, and nothing that TensorFlow logs is read.
    variables = {"PYTHONPATH": path, "CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(
        [sys.executable, "-m", "tfos_core.probe.imports", *names],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**environ, **variables},
        start_new_session=True,
        text=True,
        errors="replace",
    )
    timed_out = False
    try:
        output, _ = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        timed_out = True
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
    found: dict[str, dict[str, Any]] = {}
    for line in output.splitlines():
        if line.startswith(_MARK):
            found |= json.loads(line.removeprefix(_MARK))
    if timed_out:
        end = f"not imported within {timeout:g} s"
    elif process.returncode < 0:
        end = f"the interpreter was killed by signal {-process.returncode} while it was imported"
    else:
        end = f"the interpreter ended with code {process.returncode} while it was imported"
    return {name: found.get(name) or {"error": end, "version": "", "seconds": 0.0} for name in names}


def _try(name: str) -> dict[str, Any]:
    module, _, function = name.partition(":")
    begun, error, version = time.monotonic(), "", ""
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            loaded = importlib.import_module(module)
        version = str(getattr(loaded, "__version__", ""))
        if function and not callable(getattr(loaded, function, None)):
            error = f"it has no function {function}"
    except BaseException as exc:  # noqa: BLE001 - whatever a module does when it is imported, sys.exit included, is the finding
        error = f"{type(exc).__name__}: {exc}"[:500]
    return {"error": error, "version": version, "seconds": round(time.monotonic() - begun, 1)}


def main(names: Sequence[str]) -> None:
    """Import, and say after each how it went, so that a crash takes only the rest along."""
    for name in names:
        sys.stdout.write(f"{_MARK}{json.dumps({name: _try(name)})}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
