"""One connection without its socket: received bytes in, messages out, and the frames to send."""

from __future__ import annotations

from collections.abc import Iterator

from tfos_core.errors import ProtocolError
from tfos_core.reservation.framing import Decoder, encode_frame, frame_header
from tfos_core.reservation.handshake import SEAL_BYTES, ClientHandshake, Right, ServerHandshake
from tfos_core.reservation.messages import MESSAGE_LIMIT_BYTES, Message, Op, decode_message, encode_message

__all__ = ("Channel", "denial")


class Channel:
    """Handshake first, sealed messages after it.

    `receive` belongs to one thread at a time, and so does `seal`; the two may run beside each other.
    """

    def __init__(self, handshake: ServerHandshake | ClientHandshake) -> None:
        self._handshake = handshake
        self._decoder = Decoder()
        self._reply = bytearray(encode_frame(encode_message(handshake.opening())))

    @property
    def authenticated(self) -> bool:
        """Whether the peer has proved that it knows the secret."""
        return self._handshake.session is not None

    @property
    def right(self) -> Right | None:
        """The right that the connection is about; proved only once `authenticated`."""
        return self._handshake.right

    def take_reply(self) -> bytes:
        """What the handshake wants sent: look after construction, and after every `receive`."""
        reply = bytes(self._reply)
        self._reply.clear()
        return reply

    def receive(self, data: bytes) -> Iterator[Message]:
        """The messages completed by `data`; to be iterated to the end.

        Messages that came before a bad frame are given before the error is raised.

        Raises:
            ProtocolError: the peer broke the protocol; the connection is of no use any more.
            AuthenticationError: the peer does not know the secret.
        """
        self._decoder.feed(data)
        while (payload := self._decoder.next_payload()) is not None:
            session = self._handshake.session
            if session is not None:
                yield decode_message(session.open(payload))
                continue
            answer = self._handshake.receive(decode_message(payload))
            if answer is not None:
                self._reply += encode_frame(encode_message(answer))
            if self._handshake.session is not None:
                self._decoder.limit_bytes = SEAL_BYTES + MESSAGE_LIMIT_BYTES

    def seal(self, body: bytes) -> bytes:
        """What must be sent directly before `body`, an encoded message. The body itself is not copied, so that one can serve many.

        Raises:
            ProtocolError: the handshake is not over.
        """
        if self._handshake.session is None:
            raise ProtocolError("a message was to be sent before the handshake was over")
        return frame_header(SEAL_BYTES + len(body)) + self._handshake.session.seal(body)


def denial() -> bytes:
    """The frame that tells a peer that its proof was wrong."""
    return encode_frame(encode_message({"op": str(Op.DENIED)}))
