"""Legacy Keras (tf_keras) and datasets whose epochs differ in length.

`Model.fit` remembers how many steps the first epoch of a dataset of unknown length had, and takes it for the length of all: a
shorter epoch "ran out of data" and ends the training, a longer one is cut off. Partitions are rarely of one size and go to the node
that is free, so that epochs of a feed do differ.

Keras has no setting for it: `fit` keeps the number in an object that it makes itself and shows to nobody, callbacks included;
`steps_per_epoch=-1` counts no steps but then does not begin the dataset again either; one call of `fit` for each epoch would do,
and every program would have to be written so. Hence the one method that is replaced here.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator
from typing import Any

__all__ = ("count_every_epoch",)

logger = logging.getLogger(__name__)

_KEPT = "_tfos_catch_stop_iteration"


def count_every_epoch() -> None:
    """From now on `fit` of legacy Keras counts the steps of every epoch anew, where it has to count; again is no error."""
    if os.environ.get("TF_USE_LEGACY_KERAS", "").lower() not in ("1", "true"):
        return
    try:
        from tf_keras.src.engine.data_adapter import DataHandler

        if not hasattr(DataHandler, _KEPT):
            setattr(DataHandler, _KEPT, DataHandler.catch_stop_iteration)
            DataHandler.catch_stop_iteration = _catch_stop_iteration
    except (ImportError, AttributeError):
        logger.warning("this tf_keras is not known: an epoch that is shorter than the first one may end model.fit")


@contextlib.contextmanager
def _catch_stop_iteration(handler: Any) -> Iterator[None]:
    """Around one epoch, as a method of Keras' data handler: a number of steps that was not known is not known afterwards."""
    steps = handler._inferred_steps
    with getattr(handler, _KEPT)():
        yield
    if steps is None:
        handler._inferred_steps = None
