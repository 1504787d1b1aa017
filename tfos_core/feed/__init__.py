"""Rows of Spark's partitions to a node's TensorFlow process, and results back.

This file imports nothing: the supervisor uses `rendezvous` and `refusal` with the standard library alone.
"""

__all__ = ()
