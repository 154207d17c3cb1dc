"""Who is let in at the coordinator's socket, who is not, and what each is told."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
import zmq

from remuda.tests.keys import COORDINATOR, WORKER, caller, connection_to, keys_folder
from remuda.tests.keys import door as open_door
from remuda.tests.keys import router as open_router
from remuda.tests.patience import until
from remuda.wire import conversation
from remuda.wire import router as router_module
from remuda.wire.codec import Envelope, encode
from remuda.wire.conversation import Conversation, MovedError, NotLetInError
from remuda.wire.door import Door
from remuda.wire.keys.authorized import AuthorizedKeys, Identity
from remuda.wire.keys.folder import FOLDER, CallerKeys, KeysFolder, caller_keys
from remuda.wire.keys.pair import KeyPair, new_pair
from remuda.wire.messages import Leave, Ready, RefusalCounts, StatusRequest
from remuda.wire.router import RouterSocket
from remuda.wire.sockets import Arrival, DealerSocket

PUBLIC = "ab" * 32
SAID = Envelope(1, 0, 1, Ready(1))


class Two(AuthorizedKeys):
    """Lets in one key."""

    def __init__(self) -> None:
        super().__init__(Path())

    def who(self, public: str) -> Identity | None:
        return WORKER if public == PUBLIC else None

    ask = who


def knock(key: bytes = bytes.fromhex(PUBLIC), domain: bytes = b"remuda", version: bytes = b"1.0") -> list[bytes]:
    return [version, b"7", domain, b"10.1.2.3", b"", b"CURVE", key]


def test_a_known_key_passes_and_is_the_user_id_of_its_messages() -> None:
    door = Door(new_pair("coordinator"), Two())
    assert door.answer(knock()) == [b"1.0", b"7", b"200", b"", PUBLIC.encode(), b""]
    assert door.refusals.total == 0


@pytest.mark.parametrize(
    ("request_", "counts"),
    [
        (knock(bytes(32)), RefusalCounts(unknown_key=1)),
        (knock(b"short"), RefusalCounts(no_key=1)),
        (knock(domain=b"other"), RefusalCounts(no_key=1)),
        (knock(version=b"2.0"), RefusalCounts(no_key=1)),
        (knock()[:6], RefusalCounts(no_key=1)),
        ([], RefusalCounts(no_key=1)),
    ],
)
def test_everything_else_is_refused_and_counted(request_: list[bytes], counts: RefusalCounts) -> None:
    door = Door(new_pair("coordinator"), Two())
    assert door.answer(request_)[2] == b"400"
    assert door.refusals.counts == counts


# --- real sockets ---
@pytest.fixture(autouse=True)
def always_looked_after(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(router_module, "LOOK_INTERVAL_S", 0.0)


@contextmanager
def listening(door: Door) -> Generator[tuple[RouterSocket, Callable[[], list[object]]]]:
    """A coordinator's socket, and what has arrived there since it was asked last."""
    with closing(RouterSocket("tcp://127.0.0.1:0", door)) as router:

        def arrived() -> list[object]:
            router.wait(0.02)
            router.look_after(0.0)
            return [*router.receive_up_to(10)]

        yield router, arrived


def test_a_stranger_with_the_right_server_key_is_told_so_at_once() -> None:
    door = open_door()
    with listening(door) as (router, arrived):
        stranger = DealerSocket(router.address, b"x", CallerKeys(keys_folder().server.public, new_pair("x")))
        with closing(stranger):
            stranger.send(SAID)
            heard: list[object] = []

            def refused() -> bool:
                heard.extend(arrived())
                return stranger.refusal() == "unknown key"

            until(refused, "the refusal")
            assert heard == []
            assert door.refusals.counts == RefusalCounts(unknown_key=1)


def of_another(server: KeyPair) -> CallerKeys:
    return CallerKeys(server.public, caller().own)


def test_who_shows_no_key_gets_nothing_through() -> None:
    door = open_door()
    with listening(door) as (router, arrived), zmq.Context() as context, context.socket(zmq.DEALER) as plain:
        plain.linger = 0
        plain.connect(router.address)
        plain.send_multipart([bytes(frame) for frame in encode(SAID)])
        heard: list[object] = []

        def counted() -> bool:
            heard.extend(arrived())
            return door.refusals.counts.no_key >= 1

        until(counted, "the count")
        assert heard == []


def test_nobody_is_let_in_while_nobody_answers() -> None:
    """With a domain that is not enforced, ZeroMQ lets in everybody whom nobody is asked about."""
    with closing(open_router()) as router, closing(DealerSocket(router.address, b"x", caller())) as dealer:
        dealer.send(SAID)
        assert not router._socket.poll(300)  # pyright: ignore[reportPrivateUsage]  # and `wait` is not called
        arrived: list[object] = []

        def has_come() -> bool:
            router.wait(0.02)
            arrived.extend(router.receive_up_to(1))
            return bool(arrived)

        until(has_come, "the message")
        assert arrived == [Arrival(b"x", SAID, WORKER)]


def test_a_key_that_is_revoked_is_not_heard_over_its_old_connection_either(tmp_path: Path) -> None:
    folder = KeysFolder(tmp_path / FOLDER)
    folder.save()
    authorized = AuthorizedKeys(folder.authorized)
    authorized.look()
    door = Door(folder.server, authorized)
    own = new_pair("alice")
    folder.add("alice", own.public, "viewer")
    with listening(door) as (router, arrived):
        alice = DealerSocket(router.address, b"alice", CallerKeys(folder.server.public, own))
        with closing(alice):
            alice.send(SAID)
            heard: list[object] = []

            def listen(enough: Callable[[], object]) -> bool:
                heard.extend(arrived())
                return bool(enough())

            until(lambda: listen(lambda: heard), "her message")
            assert heard == [Arrival(b"alice", SAID, Identity("alice", "viewer"))]
            folder.revoke("alice")
            assert authorized.look() == {"alice"}
            alice.send(SAID)
            until(lambda: listen(lambda: alice.refusal() == "unknown key"), "that she is out")
            assert len(heard) == 1
            assert door.refusals.counts == RefusalCounts(revoked_key=1, unknown_key=1)
            assert not router.send(b"alice", Envelope(0, 0, 1, Leave("you get nothing either")))


# --- what a client says of it ---
@contextmanager
def beside(door: Door) -> Generator[str]:
    """The address of a socket that lets in by `door`, and is served by a thread."""
    import threading

    with closing(RouterSocket("tcp://127.0.0.1:0", door)) as router:
        over = threading.Event()

        def serve() -> None:
            while not over.is_set():
                router.wait(0.01)

        thread = threading.Thread(target=serve)
        thread.start()
        yield router.address
        over.set()
        thread.join()


def test_a_client_with_an_unknown_key_is_told_what_to_ask_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    connection = connection_to("tcp://127.0.0.1:1")
    keys = CallerKeys(connection.server_key, new_pair("mallory"))
    monkeypatch.setattr(conversation, "caller_keys", lambda *_: keys)
    monkeypatch.setattr(conversation, "keys_again", lambda *_: keys)
    with beside(open_door()) as address:
        talk = Conversation(connection_to(address))
        with pytest.raises(NotLetInError, match=f"remuda keys add mallory {keys.own.public} --right viewer") as told:
            talk.ask(StatusRequest(), 30.0)
    assert told.value.code == "forbidden"
    assert keys.own.secret.hex() not in str(told.value)


def test_a_client_of_an_old_connection_file_reads_it_again_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = of_another(new_pair("other"))
    monkeypatch.setattr(conversation, "caller_keys", lambda *_: keys)
    monkeypatch.setattr(conversation, "keys_again", lambda *_: keys)
    looks: list[bool] = []

    def moved() -> bool:
        looks.append(True)
        return False

    with beside(open_door()) as address:
        with pytest.raises(NotLetInError, match=r"does not have the key .*connection file may be an old copy"):
            Conversation(connection_to(address)).ask(StatusRequest(), 30.0, moved=moved)
        assert looks, "the connection file was read again"
        with pytest.raises(MovedError):
            Conversation(connection_to(address)).ask(StatusRequest(), 30.0, moved=lambda: True)


def test_a_client_whose_key_was_rotated_meanwhile_begins_again(monkeypatch: pytest.MonkeyPatch) -> None:
    old = CallerKeys(keys_folder().server.public, new_pair("operator"))
    monkeypatch.setattr(conversation, "caller_keys", lambda *_: old)
    with beside(open_door()) as address:
        connection = connection_to(address, coordinator=COORDINATOR)
        with pytest.raises(MovedError):
            Conversation(connection).ask(StatusRequest(), 30.0)
    assert caller_keys(connection, "operator") != old
