"""What AutoGraph of older TensorFlows has to be told about legacy Keras.

AutoGraph rewrites the Python of what it calls, unless it is of a library that needs no rewriting. TensorFlow 2.16 does not know
that tf_keras is one (2.21 does), and rewrites all of it when the first step is traced: minutes in which `model.fit` seems to hang.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

from tfos_core.after_import import after_import

__all__ = ("leave_legacy_keras_alone",)

_MODULE = "tensorflow.python.autograph.core.config"
_LIBRARY = "tf_keras"


def leave_legacy_keras_alone() -> None:
    """From the import of TensorFlow on, tf_keras runs as it is written."""
    after_import(_MODULE, _add_rule)


def _add_rule(config: Any) -> None:
    library = ModuleType(_LIBRARY)
    if not any(rule.get_action(library) == config.Action.DO_NOT_CONVERT for rule in config.CONVERSION_RULES):
        config.CONVERSION_RULES = (*config.CONVERSION_RULES, config.DoNotConvert(_LIBRARY))
