"""An inference worker's lease: computes the networks of the run for its collectors, many observations at once."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from remuda.collector.gathering import Gathering, Request, compute
from remuda.config.errors import counted
from remuda.config.schema import ExperimentConfig
from remuda.environments.assignment import configs_of_policies
from remuda.environments.make import check_environment
from remuda.logbook.timers import Timers
from remuda.policy.acting.network import Function
from remuda.policy.algorithms import make_policy
from remuda.policy.base import Policy
from remuda.policy.files.policy_file import PolicyFileError
from remuda.policy.spaces import ActionSpec, ObservationSpec
from remuda.wire.inference import Answer, Ask, InferenceRouter, forms
from remuda.wire.messages import AnyMessage, Assign, InferenceCallers, InferenceJoined, PolicyRef, Registered
from remuda.worker.affinity import bind_cores
from remuda.worker.lease_log import LeaseLog
from remuda.worker.link import Link, WorkerIdentity
from remuda.worker.stores.ports import NotNowError, PolicyStore, RunStores

POLL_S = 0.02
"""Longest wait for collectors in one step: the loop looks after messages of the coordinator between steps."""
IDLE_S = 1.0
"""Without a request for this time, the worker waits for collectors."""


@dataclass
class _Version:
    """One version of a policy. As Shared, it notes the functions of the policy."""

    policy: Policy | None = None
    functions: list[Function] = field(default_factory=list[Function])
    ref: PolicyRef | None = None
    elsewhere: bool = False

    def place(self, compute: Function | None) -> Function:
        """See Shared."""
        assert compute is not None, "it is computed here"
        self.functions.append(compute)
        return compute


class PolicyVersions:
    """The newest two versions of a policy: while some collectors still act by the one, others act by the other."""

    def __init__(
        self, make: Callable[[_Version], Policy], store: PolicyStore, warn: Callable[[str], None], timers: Timers
    ) -> None:
        """`make` builds the policy for shared inference; `warn` gets a text for the log."""
        self._store, self._warn, self._timers = store, warn, timers
        self._newest, self._former = _Version(), _Version()
        for version in (self._newest, self._former):
            version.policy = make(version)
        self._damaged = PolicyRef()
        """Version asked for when the file was found damaged."""

    def function(self, ask: Ask) -> tuple[PolicyRef, Function]:
        """Return the function for a request, of the requested version, or of a newer version if that is gone. Reads the
        policy file if the request is of a newer version than known. Raises PolicyFileError before the first version,
        NotNowError, and IndexError for a function that the policy does not have."""
        if self._newest.ref is None or ask.policy > max(self._newest.ref, self._damaged):
            self._load(ask.policy)
        found = self._former if self._former.ref == ask.policy else self._newest
        assert found.ref is not None
        return found.ref, found.functions[ask.place]

    def _load(self, wanted: PolicyRef) -> None:
        with self._timers("load policy"):
            try:
                loaded = self._store.load(newer_than=self._newest.ref)
            except PolicyFileError as error:
                if self._newest.ref is None:
                    raise
                self._damaged = wanted
                self._warn(f"keeps the policy of version {self._newest.ref.version}: {error}")
                return
            if loaded is None:
                return
            assert self._former.policy is not None
            self._former.policy.load_state(loaded.state)
        self._former.ref = loaded.ref
        self._newest, self._former = self._former, self._newest


class InferenceWork:
    """Computes for all policies of an experiment. Keeps nothing of a request, so that another inference worker can
    answer it as well."""

    warnings: Sequence[str] = ()
    """Always empty: warnings go to its own log."""
    unstored = False
    """Always False: there is nothing to store."""

    def __init__(self, assign: Assign, identity: WorkerIdentity, link: Link, stores: RunStores) -> None:
        config = ExperimentConfig.model_validate_json(assign.config_json)
        self.timers = Timers()
        self._assign, self._link = assign, link
        self._log = LeaseLog("inference", identity, link, stores)
        self.drained = False
        """True after Drain: answers are never owed."""
        try:
            self._log.say(bind_cores(config, "inference", assign.index))
            self._policies = [
                self._versions(own, store.policies)
                for own, store in zip(configs_of_policies(config).values(), stores.of_policies, strict=True)
            ]
            self._socket = InferenceRouter(address_towards(link.connection.host_reached))
        except BaseException:
            self._log.close()
            raise
        self._gathering = Gathering()
        self._totals = _Totals(config.log.buffer_interval_s)
        self._asked_s = time.monotonic()
        self._join()
        device = config.inference.device
        self._log.say(
            f"inference worker {identity.uuid} (index {assign.index}) of {assign.name}: computes on {device} for "
            f"{config.collector.count} collectors, at {self._socket.address}"
        )

    def handle(self, message: AnyMessage) -> None:
        """The keys of collectors; a new registration, perhaps with a coordinator that does not know the address."""
        match message:
            case InferenceCallers():
                self._socket.let_in(message)
            case Registered():
                self._join()
            case _:
                pass

    def step(self) -> bool:
        """Answer what collectors ask, together if possible; False while a policy is on its way."""
        now_s = time.monotonic()
        wait_s = min(self._gathering.due_s(now_s) - now_s, POLL_S)
        with self.timers("waiting for collectors"):
            self._socket.wait(wait_s)
        now_s = time.monotonic()
        self._socket.look_after(now_s)
        for peer, ask, arrays in self._socket.take():
            self._gathering.add(peer, ask, arrays, now_s)
            self._asked_s = now_s
        batches = self._gathering.take(now_s)
        if now_s - self._asked_s > IDLE_S:
            self._link.activity("waiting", "waiting for collectors")
        return all([self._answer(batch) for batch in batches])

    def drain(self) -> None:
        """End: the collectors ask another inference worker."""
        self.drained = True

    def close(self) -> None:
        """Close the socket and the log."""
        self._socket.close(linger_s=0.1)
        self._log.close()

    def _join(self) -> None:
        server = self._socket.told
        self._link.send(InferenceJoined(self._assign.lease, server.key, server))

    def _versions(self, config: ExperimentConfig, store: PolicyStore) -> PolicyVersions:
        observation, action = check_environment(config)
        specs = ObservationSpec.of(observation), ActionSpec.of(action)

        def make(version: _Version) -> Policy:
            device = config.inference.device
            return make_policy(config, *specs, chosen=self._log.say, device=device, shared=version)

        return PolicyVersions(make, store, self._log.warn, self.timers)

    def _answer(self, batch: Sequence[Request]) -> bool:
        """Compute one batch and send the answers; return False while the policy file is still being copied."""
        ask = batch[0].ask
        try:
            ref, function = self._policies[ask.policy_index].function(ask)
        except NotNowError as error:
            self._log.waits(error)
            self._gathering.put_back(batch)
            return False
        self._log.goes_on()
        self._link.activity("working", "computing actions")
        with self.timers("compute actions"):
            found = compute(batch, function)
        for request, arrays in zip(batch, found, strict=True):
            self._socket.say(request.peer, Answer(request.ask.number, ref, forms(arrays)), arrays)
        rows = sum(request.ask.rows for request in batch)
        self._link.progress(rows)
        news = self._totals.add(len(batch), rows, self._gathering.collectors, time.monotonic())
        if news is not None:
            self._log.say(news)
        return True


class _Totals:
    """Work since the last log line. Reads no clock."""

    def __init__(self, interval_s: float) -> None:
        self._interval_s = interval_s
        self._reported_s: float | None = None
        self._batches = self._requests = self._rows = 0

    def add(self, requests: int, rows: int, collectors: int, now_s: float) -> str | None:
        """Count a batch; returns a line when it is due, the first with the first batch."""
        self._batches, self._requests, self._rows = self._batches + 1, self._requests + requests, self._rows + rows
        passed_s = None if self._reported_s is None else now_s - self._reported_s
        if passed_s is not None and passed_s < self._interval_s:
            return None
        text = (
            f"computed {self._rows} observations for {counted(collectors, 'collector')} in "
            f"{counted(self._batches, 'batch', 'batches')}: requests per batch {self._requests / self._batches:.2f}"
        )
        if passed_s:
            text += f", {self._rows / passed_s:.0f} observations/s"
        self._reported_s, self._batches, self._requests, self._rows = now_s, 0, 0, 0
        return text


def address_towards(host: str) -> str:
    """Return the address of the network interface that leads to `host`, where machines of that network reach this
    machine. Sends nothing. Raises OSError for an unknown host."""
    family, kind, _, _, where = socket.getaddrinfo(host, 9, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind) as probe:
        probe.connect(where)
        address: str = probe.getsockname()[0]
    return address
