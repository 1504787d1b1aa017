"""`python -m tfos_core.tensorboard.launcher SUPERVISOR_PID ARGS...`: TensorBoard that ends with its node's supervisor.

The request to be killed with the parent survives exec, so that what runs afterwards is `python -m tensorboard.main ARGS...` itself.
"""

from __future__ import annotations

import os
import sys

from tfos_core.processes import die_with_parent

__all__ = ("main",)

_NICE = 10


def main() -> None:
    """Become TensorBoard."""
    die_with_parent(int(sys.argv[1]))
    # It imports TensorFlow while the program does, and training comes first.
    os.nice(_NICE)
    # -P: a file of the program that is called like a module of TensorBoard must not be taken for it.
    os.execv(sys.executable, [sys.executable, "-P", "-m", "tensorboard.main", *sys.argv[2:]])  # noqa: S606 - no shell is the point


if __name__ == "__main__":
    main()
