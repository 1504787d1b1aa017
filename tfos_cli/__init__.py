"""The command line of tfos: runs where the user types."""

__version__ = "0.1.0"
