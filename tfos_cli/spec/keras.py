"""Which Keras a job uses, decided from the installed distributions without importing any of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from typing import Literal

from tfos_cli.spec.model import JobSpec

__all__ = ("TENSORFLOW_DISTRIBUTIONS", "Keras", "KerasChoice", "choose_keras", "installed_version", "tensorflow_version")

Keras = Literal["legacy", "keras3"]

TENSORFLOW_DISTRIBUTIONS = (
    "tensorflow",
    "tensorflow-cpu",
    "tensorflow-macos",
    "tensorflow-gpu",
    "tensorflow-intel",
    "tensorflow-cpu-aws",
    "tensorflow-aarch64",
    "tensorflow-rocm",
    "tf-nightly",
    "tf-nightly-cpu",
    "tf-nightly-gpu",
)
"""Names under which the module `tensorflow` is distributed; the module is the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KerasChoice:
    """The Keras that nodes get, and why; for the dry run."""

    keras: Keras
    reason: str


def installed_version(distribution: str) -> str | None:
    """The version of an installed distribution, or None."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def tensorflow_version(version_of: Callable[[str], str | None] = installed_version) -> str | None:
    """The version of TensorFlow, whatever its distribution is called, or None."""
    return next((version for name in TENSORFLOW_DISTRIBUTIONS if (version := version_of(name))), None)


def choose_keras(spec: JobSpec, version_of: Callable[[str], str | None] = installed_version) -> KerasChoice:
    """The Keras of a job.

    `auto` is legacy for more than one node because `model.fit` under the distributed strategies works with tf_keras only; tf_keras
    works with TensorFlow of the same minor version only.
    """
    if spec.keras != "auto":
        return KerasChoice(keras=spec.keras, reason="set in the spec")
    if spec.is_parallel:
        return KerasChoice(keras="keras3", reason="auto: instances are no cluster")
    if spec.num_nodes < 2:
        return KerasChoice(keras="keras3", reason="auto: the cluster has one node")
    tensorflow = tensorflow_version(version_of)
    tf_keras = version_of("tf_keras")
    if tensorflow is None:
        return KerasChoice(keras="keras3", reason="auto: TensorFlow is not installed here")
    if tf_keras is None:
        return KerasChoice(keras="keras3", reason="auto: tf_keras is not installed here")
    if _minor(tensorflow) != _minor(tf_keras):
        return KerasChoice(keras="keras3", reason=f"auto: tf_keras {tf_keras} does not pair with TensorFlow {tensorflow}")
    return KerasChoice(
        keras="legacy", reason=f"auto: more than one node, and tf_keras {tf_keras} pairs with TensorFlow {tensorflow}"
    )


def _minor(version: str) -> tuple[str, ...]:
    return tuple(version.split(".")[:2])
