"""The coordinator's loop: poll, decode, handle, apply effects, tick."""

from __future__ import annotations

import contextlib
import os
import sys
import time
import traceback
from collections.abc import Callable
from uuid import uuid4

from remuda.coordinator.addresses import (
    CannotListenForStreamsError,
    PublishedFiles,
    host_and_port,
    listen,
    listen_again,
    reachable,
)
from remuda.coordinator.connections import HeldReplies
from remuda.coordinator.disk.allowed_code import AllowedCode
from remuda.coordinator.disk.disk import Disk, Found
from remuda.coordinator.disk.jobs import KeyWatch, Wakeup
from remuda.coordinator.disk.run_folders import RunFolders
from remuda.coordinator.disk.runs_folder import RunsFolder
from remuda.coordinator.effects import (
    DiskEffect,
    Effect,
    Exit,
    KeepQuota,
    PolicyEffect,
    PrepareRun,
    ReadBill,
    ReadLog,
    Send,
    effect_of,
)
from remuda.coordinator.events import (
    Event,
    HandoverRequested,
    Received,
    RecoveredRun,
    RunBroken,
    RunRecovered,
    SelfVitals,
    ShutdownRequested,
    Tick,
)
from remuda.coordinator.measuring import Measuring, ThrottledLines, TurnWatch
from remuda.coordinator.membership import FilesOffer
from remuda.coordinator.monitoring.address import addresses_for_people
from remuda.coordinator.monitoring.address import listen as listen_for_http
from remuda.coordinator.monitoring.process import MonitoringProcess
from remuda.coordinator.settings import Settings
from remuda.coordinator.state import UNKNOWN, Coordinator
from remuda.coordinator.stream_server import StreamServerProcess
from remuda.coordinator.stream_server import listen as listen_for_streams
from remuda.logbook.lines import unforgeable
from remuda.logbook.timers import Timers
from remuda.storage.lock import boot_id
from remuda.training.effects import LogLine
from remuda.training.journal_entry import JournalEntry
from remuda.training.run_snapshot import FinishedRun
from remuda.wire.codec import CodecError, Envelope, ProtocolMismatchError, TooEarlyError
from remuda.wire.door import Door
from remuda.wire.keys.authorized import AuthorizedKeys, Grants
from remuda.wire.keys.folder import KeysFolder
from remuda.wire.messages import Rejected
from remuda.wire.sockets import Arrival, Malformed
from remuda.worker.process import collecting_rarely, quick_switches, raise_open_files_limit
from remuda.worker.shutdown_guard import ShutdownGuard
from remuda.worker.vitals import VitalSigns

TICK_S = 0.05
MESSAGES_PER_TURN = 128
"""Messages handled before all effects are carried out and the clock is read again: enough to share a commit of the
journal, and few enough that early answers do not wait long in a flood."""

LEASES_PER_START = 1_000_000
"""Distance between the lease numbers of two starts. No lease may repeat a number of an earlier coordinator, even of a
lost run and journal: messages of the old worker would be taken for messages of the new worker."""
RECOVERY_S = 60.0
"""Time for which a starting coordinator waits for the disks of the runs to recover."""
LAST_WORDS_S = 0.2
"""Time for which the socket stays open for messages of the last turn. The last worker's goodbye is answered here;
without this answer, the worker would wait for seconds."""


class Service:
    """Connects the pure state machine to a socket, disks and a clock. Its thread never waits for a slow disk."""

    def __init__(self, settings: Settings, guard: ShutdownGuard) -> None:
        """Raises CannotListenError, HttpAddressError or ConnectionFileTakenError, before writing anything;
        FolderOwnedError if a different coordinator owns the runs folder; KeyFileError if keys are damaged or readable
        by more users; NoCurveError, JournalError, OSError."""
        raise_open_files_limit()
        self._settings, self._guard = settings, guard
        self._throttled_lines, self._complaints_of_refusals = ThrottledLines(), ThrottledLines()
        self.id = str(uuid4())
        """Unique id of this coordinator, different from earlier ones on the same runs folder."""
        self._published_files = PublishedFiles(settings, self.id)
        self._published_files.require_free()
        self._keys = KeysFolder(settings.keys_dir)
        self._keys.turn_over()
        authorized = AuthorizedKeys(self._keys.authorized)
        door = Door(self._keys.server, authorized)
        self._http = None if settings.http is None else listen_for_http(settings.http)
        asked_for = None if settings.address is None else listen(settings.address, door)
        self._runs_folder = RunsFolder(settings.list_dir) if settings.persistent else None
        last_address = None if self._runs_folder is None else self._runs_folder.last_address
        self._socket = asked_for or listen_again(last_address, door)
        self._keys.save()
        authorized.look()
        self._key_watch = KeyWatch(authorized)
        self._refusals = door.refusals
        self.address = reachable(self._socket.address, settings.advertised)
        """Public address of the coordinator."""
        self._streams = self._listen_for_streams()
        self._published_files.put_token()
        self._epoch = 1 if self._runs_folder is None else self._runs_folder.begin(self._socket.address)
        self._wakeup = Wakeup()
        self._socket.watch(self._wakeup.fileno())
        allowed = AllowedCode(settings.allowed_code)
        self._run_folders = RunFolders(settings.runs_dir, self._published_files.token, allowed)
        self._disk = Disk(self._run_folders, self._runs_folder, self._wakeup.wake)
        self._held_replies = HeldReplies(self._send, self._disk.waits_for)
        self._coordinator = Coordinator(
            id=self.id,
            address=self.address,
            pid=os.getpid(),
            now_s=time.monotonic(),
            limits=settings.limits,
            leases=self._epoch * LEASES_PER_START,
            boot=boot_id(),
            refusals=self._refusals,
            idle_end_s=settings.idle_end_s,
            files=FilesOffer(
                os.path.normpath(settings.runs_dir),
                self._published_files.token.digest,
                settings.persistent,
                self._streams.port,
                Grants(self._keys.server),
            ),
        )
        self._socket.connections.is_worker = self._coordinator.registry.has
        self._effects: list[Effect] = []
        """The effects of this turn."""
        self._timers = Timers()
        self._vitals = VitalSigns(0, self._timers)
        self._watch = TurnWatch(lambda text: self._effects.append(LogLine(None, text, "warning")))
        self._monitoring: MonitoringProcess | None = None
        self._measuring = Measuring(self._coordinator, self._disk, self._watch, self._throttled_lines.say)
        self._done = self._asked_to_end = False

    @property
    def monitoring_lines(self) -> list[str]:
        """Addresses of health and metrics, for people; empty if not served."""
        return [] if self._http is None else addresses_for_people(self._http)

    @property
    def listens_on(self) -> str:
        """Address of the bound socket."""
        return self._socket.address

    def run(self) -> None:
        """Run until the end is requested, everything is saved and all workers have left."""
        with contextlib.ExitStack() as end:  # all of these are called even if others fail; the last one first
            if self._runs_folder is not None:
                end.callback(self._runs_folder.close)
            end.callback(self._wakeup.close)
            end.callback(self._socket.close, linger_s=LAST_WORDS_S)
            end.callback(self._run_folders.close)
            end.callback(self._disk.close)
            end.callback(self._streams.close)
            end.callback(self._published_files.token.remove)
            if self._http is not None:
                self._monitoring = MonitoringProcess(self._http, self._throttled_lines.say)
                end.callback(self._monitoring.close)
            self._recover()
            end.enter_context(collecting_rarely())
            end.enter_context(quick_switches())
            self._published_files.put_connection_file(self.address, self._epoch, self._keys)
            end.callback(self._remove_connection_file)
            self._turn_until_done()

    def _turn_until_done(self) -> None:
        next_tick_s = time.monotonic()
        while not self._done:
            with self._timers("waiting for messages"):
                self._socket.wait(max(next_tick_s - time.monotonic(), 0.0))
            self._watch.begin()
            self._wakeup.clear()
            self._contained(self._hear_of_disks)
            self._watch.part("collect from disks")
            self._receive()
            self._watch.part("handle messages")
            now_s = time.monotonic()
            self._contained(lambda: self._socket.look_after(time.monotonic()))
            if now_s >= next_tick_s:
                self._contained(self._tick)
                next_tick_s = now_s + TICK_S
                self._watch.part("tick")
            self._contained(self._carry_out)
            self._watch.part("hand over and answer")
            self._watch.end()

    def _contained(self, part: Callable[[], None]) -> None:
        """Run a part of a turn. An error is logged, and the coordinator continues for the remaining runs."""
        try:
            with self._timers("decide"):
                part()
        except Exception:
            self._throttled_lines.say(f"an error in the coordinator, which goes on:\n{traceback.format_exc()}")

    # --- what there is to handle ---

    def _recover(self) -> None:
        """Recover the runs of an earlier coordinator. A run whose disk does not answer is recovered later."""
        if self._runs_folder is None:
            return
        for quota in self._runs_folder.quotas():
            self._coordinator.shares.set_quota(quota)
        waiting = self._runs_folder.unfinished()
        runs: dict[str, RecoveredRun | FinishedRun | None] = {}
        runs |= {finished.identity.id: finished for finished in self._runs_folder.finished()}
        self._disk.recover(waiting)
        deadline_s, missing = time.monotonic() + RECOVERY_S, {run.experiment for run in waiting}
        while missing and (left_s := deadline_s - time.monotonic()) > 0:
            self._wakeup.wait(left_s)
            for found in self._disk.found():
                if isinstance(found, RunRecovered):
                    runs[found.experiment] = found.run
                    missing.discard(found.experiment)
        for experiment in missing:
            print(f"experiment {experiment} is taken up as soon as its disk answers", file=sys.stderr)
        for past in self._runs_folder.past():
            self._coordinator.shares.note(past)
        known = sorted((run for run in runs.values() if run is not None), key=lambda run: run.identity.submitted)
        self._effects += self._coordinator.recover(known, time.monotonic())

    def _hear_of_disks(self) -> None:
        self._hear_of_journals()
        for event in self._disk.found():
            self._hear(event)

    def _hear_of_journals(self) -> None:
        for each in self._disk.journaled():
            self._held_replies.journaled(each.experiment, each.number)

    def _hear(self, event: Found) -> None:
        if isinstance(event, RunRecovered):
            late = [] if event.run is None else [event.run]
            self._effects += self._coordinator.recover(late, time.monotonic(), late=True)
            return
        if isinstance(event, RunBroken):
            self._held_replies.drop(event.experiment)
        self._handle(event)

    def _receive(self) -> None:
        with self._timers("decide"):
            for event in self._socket.receive_up_to(MESSAGES_PER_TURN):
                match event:
                    case Arrival():
                        self._received(event)
                    case Malformed():
                        self._refuse(event)

    def _received(self, arrival: Arrival) -> None:
        """Handle a message. On an error only the conversation with its sender ends."""
        if arrival.who is None:
            self._throttled_lines.say(f"{arrival.peer!r} connected without a key; ignored")
            return
        try:
            self._handle(Received(arrival.peer, arrival.envelope, arrival.who))
        except Exception:
            kind = type(arrival.envelope.message).__name__
            text = f"{kind} from {arrival.peer!r} cannot be handled, it is dropped:\n{traceback.format_exc()}"
            self._throttled_lines.say(text)
            self._contained(lambda: self._effects.extend(self._coordinator.drop(arrival.peer, time.monotonic())))

    def _tick(self) -> None:
        if self._guard.ending and not self._asked_to_end:
            self._asked_to_end = True
            reason, hands_over = self._guard.reason, self._settings.hands_over
            self._handle(HandoverRequested(reason) if hands_over else ShutdownRequested(reason))
        for event in self._disk.look():
            self._hear(event)
        self._look_at_keys()
        self._streams.tick()
        self._refusals.note_elsewhere(self._streams.refusals)
        self._handle(Tick(int(time.time()) // 3_600))
        vitals = self._vitals.due()
        if vitals is not None:
            self._measuring.measure_load()
            self._handle(SelfVitals(vitals, self._measuring.load))
        if self._monitoring is not None:
            self._monitoring.tick(lambda: self._measuring(self._refusals.counts, self._socket.malformed))

    def _look_at_keys(self) -> None:
        """End the connections of revoked or replaced keys, and log refusals."""
        changed = self._key_watch.changed(time.monotonic())
        for peer in self._coordinator.connections.of(changed) if changed else ():
            self._socket.connections.hang_up(peer)
        if self._complaints_of_refusals.due and (news := self._refusals.news()) is not None:
            self._complaints_of_refusals.say(news)

    def _handle(self, event: Event) -> None:
        for effect in self._coordinator.handle(event, time.monotonic()):
            match effect:
                case PrepareRun():
                    self._disk.prepare(effect)
                case ReadLog() | ReadBill() | KeepQuota():
                    refused = self._disk.ask(effect)
                    if refused is not None:
                        self._handle(refused)
                case _:
                    self._effects.append(effect)

    # --- what is done about it ---

    def _carry_out(self) -> None:
        """Hand over the writes of each run, and send messages. A message waits for the journal of the run if needed."""
        entries: list[JournalEntry] = []
        while self._coordinator.journaling.touched:
            entries += self._coordinator.journal_entries(time.monotonic())
        effects, self._effects = self._effects, []
        lost, writes, sends = self._coordinator.unjournaled, list[DiskEffect](), list[Send]()
        for effect in effects:
            match effect:
                case _ if lost and _experiment_of(effect) in lost:
                    pass
                case Send():
                    sends.append(effect)
                case Exit():
                    self._done = True
                case PrepareRun() | ReadLog() | ReadBill() | KeepQuota() | JournalEntry():
                    raise AssertionError("handed over before")
                case _:
                    self._print(effect)
                    writes.append(effect)
        if entries or writes:
            self._disk.write(entries, writes)
            self._hear_of_journals()
        for send in sends:
            self._held_replies.put(send)

    def _print(self, effect: DiskEffect) -> None:
        """Print log lines of runs to the coordinator's own output, too, with the policy's name if a run has several."""
        if isinstance(line := effect_of(effect), LogLine):
            text = f"{effect.policy}: {line.text}" if isinstance(effect, PolicyEffect) else line.text
            print(unforgeable(text), file=sys.stderr, flush=True)

    def _send(self, send: Send) -> None:
        """Send an envelope. A failure is logged; the recipient misses the message."""
        try:
            self._socket.send(send.peer, send.envelope)
        except CodecError as error:
            self._throttled_lines.say(f"to {send.peer!r}: {error}")

    def _refuse(self, event: Malformed) -> None:
        """Answer garbage: a peer of a different protocol gets an answer in that protocol, and a worker of an earlier
        coordinator is asked to register. The remaining garbage is logged from time to time."""
        if isinstance(event.error, TooEarlyError):
            self._socket.send(event.peer, Envelope(0, 0, 1, UNKNOWN))
            return
        which = f"from {event.peer!r} (the {self._socket.malformed}. in all)"
        self._throttled_lines.say(f"malformed message {which}: {event.error}")
        if isinstance(event.error, ProtocolMismatchError):
            answer = Envelope(0, 0, 1, Rejected("protocol", str(event.error)))
            self._socket.send(event.peer, answer, protocol=event.error.theirs)

    # --- beginning and end ---

    def _listen_for_streams(self) -> StreamServerProcess:
        """Listen at the interfaces of the coordinator's own socket. Raises CannotListenForStreamsError."""
        host, _ = host_and_port(self._socket.address)
        port = self._settings.stream_port
        try:
            listener = listen_for_streams(host, port)
        except OSError as error:
            self._socket.close()
            raise CannotListenForStreamsError(f"{host}:{port}: {error.strerror}") from error
        return StreamServerProcess(listener, self._settings.runs_dir, self._keys.path, self._throttled_lines.say)

    def _remove_connection_file(self) -> None:
        """Unless workers are to wait for the next coordinator."""
        if not (self._asked_to_end and self._settings.hands_over):
            self._published_files.remove_connection_file()


def _experiment_of(effect: Effect) -> str | None:
    """Return the experiment with a journal to be written before this effect; None or empty without this condition."""
    match effect:
        case Send():
            return effect.after
        case Exit() | ReadLog() | ReadBill() | KeepQuota():
            return None
        case _:
            return effect.experiment
