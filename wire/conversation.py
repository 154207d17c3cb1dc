"""A client's side of the protocol: sends one request at a time and waits for the answer."""

from __future__ import annotations

import time
from collections.abc import Callable

from remuda.config.errors import Error
from remuda.wire.channel import Channel
from remuda.wire.codec import OF_STRANGERS, CodecError, Envelope, check
from remuda.wire.connection_file import ConnectionFile
from remuda.wire.keys.folder import caller_keys, keys_again, no_exchange, not_authorized
from remuda.wire.messages import AnyMessage, ClientMessage, Rejected
from remuda.wire.patience import spoken
from remuda.wire.sockets import SILENCE_S, Arrival, DealerSocket, client_identity

_LOOK_S = 0.2
"""Between two checks for another coordinator or key."""


class RefusedError(Error):
    """The coordinator refused. `code` is a code of Rejected; the text is the reason."""

    def __init__(self, rejected: Rejected) -> None:
        super().__init__(rejected.reason)
        self.code = rejected.code
        self.reason = rejected.reason


class NotLetInError(RefusedError):
    """The coordinator does not know this key, or the process at the address is not the coordinator; the text names the
    remedy."""

    def __init__(self, reason: str) -> None:
        super().__init__(Rejected("forbidden", reason))


class UnreachableError(Error):
    """The coordinator did not answer in time."""


class MovedError(Exception):
    """The connection file names another coordinator now, or another key is to be shown."""


def no_answer(connection: ConnectionFile, deadline_s: float) -> UnreachableError:
    """Return the error for a silent coordinator: its address, and possible causes."""
    return UnreachableError(
        f"the coordinator at {connection.address} (process {connection.pid} on {connection.host}) did not answer "
        f"within {spoken(deadline_s)}: it may have ended, or the network may be blocked"
    )


class Conversation:
    """Requests to one coordinator and its answers. Not thread-safe."""

    def __init__(self, connection: ConnectionFile) -> None:
        """Raises KeyFileError if no key exists for this coordinator."""
        self._connection = connection
        self._keys = caller_keys(connection, "operator")
        self._socket = DealerSocket(connection.address, client_identity(), self._keys)
        self._channel = Channel()
        self.closed = False

    def ask(
        self, message: ClientMessage, deadline_s: float, *, moved: Callable[[], bool] = lambda: False
    ) -> AnyMessage:
        """Send `message`, repeat it if necessary, and return the answer.

        Raises RefusedError if the answer is Rejected, or if the message is malformed (for instance a text too long),
        NotLetInError if the keys do not fit, UnreachableError after `deadline_s` seconds, and MovedError if `moved`
        returns true. `moved` is called several times a second until the answer arrives, and may raise. Without an
        answer the conversation is closed, so that the request is not repeated with the next request.
        """
        try:
            check(Envelope(1, 0, 1, message), OF_STRANGERS)
        except CodecError as error:  # the coordinator would drop the message without an answer
            raise RefusedError(Rejected("malformed", str(error))) from error
        try:
            answer = self._answer(message, deadline_s, moved)
        except BaseException:
            self.close()
            raise
        if isinstance(answer, Rejected):
            raise RefusedError(answer)
        return answer

    def _answer(self, message: ClientMessage, deadline_s: float, moved: Callable[[], bool]) -> AnyMessage:
        now_s = time.monotonic()
        end_s, look_s, renew_s = now_s + deadline_s, now_s + _LOOK_S, now_s + SILENCE_S
        self._socket.send(self._channel.post(message, now_s))
        while now_s < end_s:
            due_s = self._channel.next_due_s()
            self._socket.wait(min(end_s, due_s or end_s, now_s + _LOOK_S) - now_s)
            now_s = time.monotonic()
            answer = self._receive(now_s)
            if answer is not None:
                return answer
            self._raise_if_not_let_in(moved)
            if now_s >= renew_s:
                renew_s = now_s + SILENCE_S
                self._socket.renew()
                self._channel.hurry(now_s)
            for envelope in self._channel.due(now_s):
                self._socket.send(envelope)
            if now_s >= look_s:
                look_s = now_s + _LOOK_S
                if moved():
                    raise MovedError
        raise no_answer(self._connection, deadline_s)

    def _raise_if_not_let_in(self, moved: Callable[[], bool]) -> None:
        refusal = self._socket.refusal()
        if refusal is None:
            return
        unknown = refusal == "unknown key"
        if moved() or (unknown and keys_again(self._connection, "operator") != self._keys):
            raise MovedError
        if unknown:
            raise NotLetInError(not_authorized(self._connection, self._keys, "operator"))
        raise NotLetInError(no_exchange(self._connection))

    def close(self) -> None:
        """End the conversation. May be called again."""
        self.closed = True
        self._socket.close()

    def _receive(self, now_s: float) -> AnyMessage | None:
        """Return the answer, if it has arrived: as a reply, or as a separate message after an Ack."""
        while (event := self._socket.receive()) is not None:
            if not isinstance(event, Arrival):
                continue
            received = self._channel.take(event.envelope, now_s)
            for envelope in received.answers:
                self._socket.send(envelope)
            if received.message is not None:
                return received.message
        return None
