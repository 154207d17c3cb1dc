"""A collector's side of shared inference: asks an inference worker of the run, and another if one is lost."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from remuda.logbook.timers import Timers
from remuda.policy.acting.network import Function
from remuda.policy.base import Arrays
from remuda.wire.inference import Ask, InferenceDealer, forms
from remuda.wire.keys.pair import new_pair
from remuda.wire.messages import Drain, InferenceJoined, InferenceServer, InferenceServers, PolicyRef, Registered
from remuda.worker.link import Link

LOOK_S = 0.05
"""Seconds between two looks for news, while an answer is awaited."""
ASK_AGAIN_S = 2.0
"""After this time without an answer, the next inference worker is asked the same; with only one, this one again. An
answer to either counts: both are computed from the same observations."""
WAITING = "waiting for an inference worker"


class LeaseEndsError(Exception):
    """The lease, or the process, ends, and no answer comes: the chunk under way is given up."""


class InferenceClient:
    """Asks the inference workers for all policies of a collector. A question stays until it is answered: a collector
    that computed instead would need the network, and perhaps a GPU, and would hide that the workers are missing."""

    def __init__(
        self,
        link: Link,
        lease: int,
        index: int,
        ending: Callable[[], bool],
        warn: Callable[[str], None],
        timers: Timers,
    ) -> None:
        """`index` is the collector's: collectors are spread over the inference workers. `ending` is true if the process
        should end."""
        self._timers = timers
        self._link, self._lease, self._index = link, lease, index
        self._ending, self._warn = ending, warn
        self._keys = new_pair("collector")
        self._news: InferenceServers | None = None
        self._registered: Registered | None = None
        """The newest registration during a wait."""
        self._servers: Sequence[InferenceServer] = ()
        self._server: InferenceServer | None = None
        self._dealer: InferenceDealer | None = None
        self._number = 0
        self._offset = 0
        self.places: list[int] = []
        """Number of functions computed elsewhere, by policy."""
        self.acting: Sequence[PolicyRef] = ()
        """Version by which each policy acts, set before a chunk."""
        self.join()

    def join(self) -> None:
        """Tell the coordinator of this collector; again after a new registration."""
        self._link.send(InferenceJoined(self._lease, self._keys.public))

    def policy(self) -> Elsewhere:
        """Return shared inference for the next policy."""
        self.places.append(0)
        return Elsewhere(self, len(self.places) - 1)

    def note(self, news: InferenceServers) -> None:
        """Note the inference workers of the run."""
        if news == self._news:
            return
        self._news, self._servers, self._offset = news, news.servers, 0
        self._choose()

    def ask(self, policy_index: int, place: int, output: str, arrays: Arrays) -> Arrays:
        """Return the output, as computed by an inference worker. Raises LeaseEndsError."""
        self._number += 1
        ask = Ask(self._number, policy_index, place, output, self.acting[policy_index], forms(arrays))
        self._send(ask, arrays)
        with self._timers("waiting for actions"):
            answer = None if self._dealer is None else self._answer()
            return self._late_answer(ask, arrays) if answer is None else answer

    def close(self) -> None:
        """Close the connection."""
        if self._dealer is not None:
            self._dealer.close()
            self._dealer = None

    def _late_answer(self, ask: Ask, arrays: Arrays) -> Arrays:
        """Wait for the answer, visibly, and ask again where it may have been lost."""
        began_s = asked_s = time.monotonic()
        warned = False
        with self._link.during("waiting", WAITING):
            while True:
                now_s, dealer = time.monotonic(), self._dealer
                is_late = not self._servers or now_s - began_s > ASK_AGAIN_S
                if is_late and (self._ending() or self._link.arrived(Drain, self._lease) is not None):
                    raise LeaseEndsError
                self._look_at_registration()
                if dealer is not None and dealer.refusal() is not None:  # it learns of the key a moment later
                    self._choose(again=True)
                news = self._link.arrived(InferenceServers, self._lease)
                if news is not None:
                    self.note(news)
                if now_s - asked_s > ASK_AGAIN_S:
                    self._offset += 1
                    self._choose()
                if self._dealer is not dealer or now_s - asked_s > ASK_AGAIN_S:
                    asked_s = now_s
                    self._send(ask, arrays)
                if not warned and now_s - began_s > 5 * ASK_AGAIN_S:
                    warned = True
                    self._warn(f"{WAITING}: {len(self._servers)} are known, and none has answered")
                if self._dealer is None:
                    time.sleep(LOOK_S)
                elif (answer := self._answer()) is not None:
                    return answer

    def _look_at_registration(self) -> None:
        """Join again with a restarted coordinator, which does not know this collector: until then no inference worker
        lets the collector in. Raises LeaseEndsError if the lease is over."""
        registered = self._link.arrived(Registered, self._lease)
        if registered is None or registered is self._registered:
            return
        if not registered.goes_on:
            raise LeaseEndsError
        self._registered = registered
        self.join()

    def _answer(self) -> Arrays | None:
        """Return the answer to the newest question, if it comes soon."""
        assert self._dealer is not None
        end_s = time.monotonic() + LOOK_S
        while (left_s := end_s - time.monotonic()) > 0:
            self._dealer.wait(left_s)
            found = self._dealer.take(self._number)
            if found is not None:
                return {name: np.array(array) for name, array in found[1].items()}  # the policy may change them
        return None

    def _send(self, ask: Ask, arrays: Arrays) -> None:
        if self._dealer is not None:
            self._dealer.say(ask, arrays)

    def _choose(self, *, again: bool = False) -> None:
        """Connect to the collector's own inference worker, or to a later one; `again` makes a new connection."""
        servers = self._servers
        server = servers[(self._index + self._offset) % len(servers)] if servers else None
        if server == self._server and not again:
            return
        self.close()
        self._server = server
        if server is not None:
            self._dealer = InferenceDealer(server, self._keys)


@dataclass(frozen=True)
class Elsewhere:
    """Shared inference of a policy of a collector; see remuda.policy.acting.network.Shared."""

    client: InferenceClient
    policy_index: int
    elsewhere: bool = True

    def place(self, compute: Function | None) -> Function:
        """See Shared."""
        place = self.client.places[self.policy_index]
        self.client.places[self.policy_index] += 1
        return lambda output, arrays: self.client.ask(self.policy_index, place, output, arrays)
