"""TensorBoard beside the leading node, and the event files of every node collected on the driver.

On the node: `process` runs TensorBoard, `collector` sends what is new in the node's event files. On the driver: `board` knows where
TensorBoard answers and how long it stays, `receiver` takes what nodes send, `folder` writes it.
"""

from __future__ import annotations

from tfos_core.tensorboard.folder import EventFileFolder
from tfos_core.tensorboard.options import FileSink, TensorBoardOptions

__all__ = ("EventFileFolder", "FileSink", "TensorBoardOptions")
