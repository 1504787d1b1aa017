"""How the nodes of a cluster find each other, and how the driver talks to them: the control channel."""

from __future__ import annotations

from tfos_core.reservation.client import Client
from tfos_core.reservation.concealed import conceal, reveal
from tfos_core.reservation.handshake import Right
from tfos_core.reservation.messages import Message
from tfos_core.reservation.record import NodeRecord
from tfos_core.reservation.registry import Reservations
from tfos_core.reservation.server import Server

__all__ = ("Client", "Message", "NodeRecord", "Reservations", "Right", "Server", "conceal", "reveal")
