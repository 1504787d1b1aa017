"""Tells when the program sits in `tf.distribute.Server.join()`: that call never returns, so others decide when the node is done.

TensorFlow is not imported here: `watch_join` waits for the program to import it.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from types import ModuleType
from typing import Any

from tfos_core.after_import import after_import

__all__ = ("watch_join",)

#: Where `tf.distribute.Server` (and `tf.compat.v1.train.Server`, the same class) is defined.
_MODULE = "tensorflow.python.training.server_lib"


def watch_join(joined: Callable[[], None]) -> None:
    """Call `joined` whenever the main thread enters `Server.join()`, whoever made the server.

    A server that is joined in another thread says nothing about the function that runs in the main thread.
    """
    after_import(_MODULE, functools.partial(_tell_of_join, joined))


def _tell_of_join(joined: Callable[[], None], module: ModuleType) -> None:
    join = module.Server.join

    @functools.wraps(join)
    def told(server: Any) -> None:
        if threading.current_thread() is threading.main_thread():
            joined()
        join(server)

    module.Server.join = told
