"""A client's side of the wire: ask the coordinator one thing at a time and wait for the answer."""

from __future__ import annotations

import time
from collections.abc import Callable

from remuda.wire.channel import Channel
from remuda.wire.codec import OF_STRANGERS, CodecError, check
from remuda.wire.connection_file import ConnectionFile
from remuda.wire.envelope import Envelope
from remuda.wire.messages import AnyMessage, ClientMessage, Rejected
from remuda.wire.sockets import SILENCE_S, Arrival, DealerSocket, client_identity

_LONGEST_WAIT_S = 1.0


class RefusedError(Exception):
    """The coordinator said no. `code` is one of Rejected's; the text is its reason."""

    def __init__(self, rejected: Rejected) -> None:
        super().__init__(rejected.reason)
        self.code = rejected.code
        self.reason = rejected.reason


class UnreachableError(Exception):
    """The coordinator did not answer in time."""


class MovedError(Exception):
    """The coordinator that was asked is not the one to be asked any more."""


def no_answer(connection: ConnectionFile, deadline_s: float) -> UnreachableError:
    """Say whom we tried to reach, and what may be wrong."""
    return UnreachableError(
        f"the coordinator at {connection.address} (process {connection.pid} on {connection.host}) did not answer "
        f"within {deadline_s:g} s: it may have ended, or the network between may be closed"
    )


class Conversation:
    """Questions and answers with one coordinator. Not for use by several threads at once."""

    def __init__(self, connection: ConnectionFile) -> None:
        self._connection = connection
        self._socket = DealerSocket(connection.address, client_identity())
        self._channel = Channel()

    def ask(
        self, message: ClientMessage, deadline_s: float, *, moved: Callable[[], bool] = lambda: False
    ) -> AnyMessage:
        """Send `message`, again if need be, and return its answer.

        Raises RefusedError when the answer is Rejected, or the message is one that the coordinator would not understand
        (a text too long), UnreachableError after `deadline_s` seconds, and MovedError
        when `moved`, which is called now and then, says that somebody else is to be asked. After the last two the
        conversation is over, so that the forgotten question is not repeated along with the next one.
        """
        _refuse_malformed(message)
        now_s = time.monotonic()
        end_s, look_s, renew_s = now_s + deadline_s, now_s + _LONGEST_WAIT_S, now_s + SILENCE_S
        self._socket.send(self._channel.post(message, now_s))
        while now_s < end_s:
            due_s = self._channel.next_due_s()
            self._socket.wait(min(end_s, due_s or end_s, now_s + _LONGEST_WAIT_S) - now_s)
            now_s = time.monotonic()
            answer = self._receive(now_s)
            if isinstance(answer, Rejected):
                raise RefusedError(answer)
            if answer is not None:
                return answer
            if now_s >= renew_s:
                renew_s = now_s + SILENCE_S
                self._socket.renew()
                self._channel.hurry(now_s)
            for envelope in self._channel.due(now_s):
                self._socket.send(envelope)
            if now_s >= look_s:
                look_s = now_s + _LONGEST_WAIT_S
                if moved():
                    self.close()
                    raise MovedError
        self.close()
        raise no_answer(self._connection, deadline_s)

    def close(self) -> None:
        """End the conversation. May be called again."""
        self._socket.close()

    def _receive(self, now_s: float) -> AnyMessage | None:
        """The answer, if it has arrived: a reply, or a message of its own after a mere Ack."""
        while (event := self._socket.receive()) is not None:
            if not isinstance(event, Arrival):
                continue
            received = self._channel.take(event.envelope, now_s)
            for envelope in received.answers:
                self._socket.send(envelope)
            if received.message is not None:
                return received.message
        return None


def _refuse_malformed(message: ClientMessage) -> None:
    """What the coordinator takes for garbage it never answers."""
    try:
        check(Envelope(1, 0, 1, message), OF_STRANGERS)
    except CodecError as error:
        raise RefusedError(Rejected("malformed", str(error))) from error
