"""What stays readable on the network when Spark encrypts its own traffic; pure."""

from __future__ import annotations

from collections.abc import Callable

__all__ = ("CLEAR_TEXT", "encryption_settings", "is_on", "stays_on_host")

_SETTINGS = (
    "spark.network.crypto.enabled",
    "spark.authenticate.enableSaslEncryption",
    "spark.ssl.enabled",
    "spark.ssl.rpc.enabled",
)

#: How a sentence goes on that begins with the settings.
CLEAR_TEXT = (
    "but what tfos sends between hosts is not: its control channel is authenticated clear text (except for the values of "
    "environment.secrets), and TensorFlow's own traffic has not even that; rows do not leave the host of their executor"
)


def encryption_settings(get: Callable[[str, str], str | None]) -> tuple[str, ...]:
    """The settings that make Spark encrypt its traffic, those that are on; `get` takes a name and a default."""
    return tuple(name for name in _SETTINGS if is_on(get(name, "false")))


def stays_on_host(host: str) -> bool:
    """Whether what goes to this host, a driver's, leaves no machine."""
    return host.strip("[]") in ("localhost", "::1") or host.startswith("127.")


def is_on(value: str | None) -> bool:
    """A setting as Spark reads it: in any case, spaces around it."""
    return (value or "").strip().lower() == "true"
