"""What workers without the runs folder say to the stream server: no message ends it, names a file elsewhere, or is
believed without the coordinator's seal."""

from __future__ import annotations

import random
from pathlib import Path

import msgspec
import pytest

from remuda.storage.run_folder import RunFolder
from remuda.tests.buffer.chunks import WORKER, meta_of
from remuda.tests.security.sizes import FRAMES
from remuda.tests.security.test_frames import mutate
from remuda.wire.codec import CodecError
from remuda.wire.keys.authorized import Grants
from remuda.wire.keys.pair import new_pair
from remuda.wire.messages import Grant
from remuda.wire.streams import Get, LogAppend, Put, decode, encode, of_workers
from remuda.worker.stores.server.granted_paths import GrantedPaths, NotAllowedError

GRANTS = Grants(new_pair("coordinator"))
FILE = meta_of(0, 5).file


def grant(run_dir: str, **changes: object) -> Grant:
    made = Grant(run_dir, "collector", WORKER, 1, "policy_x_000001")
    return GRANTS.seal(msgspec.structs.replace(made, **changes))


@pytest.fixture
def places(tmp_path: Path) -> GrantedPaths:
    run = RunFolder(tmp_path / "runs" / "x")
    run.data.mkdir(parents=True)
    run.owner.touch()  # a coordinator works on it
    return GrantedPaths(tmp_path / "runs", GRANTS)


def test_an_honest_worker_brings_its_own_chunks(places: GrantedPaths, tmp_path: Path) -> None:
    run = tmp_path / "runs" / "x"
    sealed = grant(str(run))
    assert places.to_write(Put(1, sealed, "chunk", FILE, 9)) == run / "data" / FILE
    assert places.to_write(Put(1, sealed, "chunk", FILE, 9, "fox")) == run / "data" / "fox" / FILE
    assert places.to_read(Get(2, sealed, "policy", "policy_y_000002", policy="fox")) == (
        run / "policy" / "fox" / "policy_y_000002"
    )


def test_a_grant_that_was_believed_before_lends_nothing_to_another(places: GrantedPaths, tmp_path: Path) -> None:
    sealed = grant(str(tmp_path / "runs" / "x"))
    assert places.run(sealed) == places.run(sealed)
    for change in ({"seal": "0" * 64}, {"worker": WORKER.replace("0", "1")}, {"run_dir": str(tmp_path / "runs" / "y")}):
        with pytest.raises(NotAllowedError, match="has not granted this"):
            places.run(msgspec.structs.replace(sealed, **change))


def test_mutated_messages_are_refused_or_stay_in_the_run_folder(places: GrantedPaths, tmp_path: Path) -> None:
    run, chance = tmp_path / "runs" / "x", random.Random(35)
    sealed = grant(str(run))
    sound = [
        [bytes(frame) for frame in encode(message)]
        for message in (
            Put(1, sealed, "chunk", FILE, 9),
            Put(1, sealed, "chunk", FILE, 9, "fox"),
            Get(2, sealed, "checkpoint", "iteration_0.pth.tar", policy="fox"),
        )
    ]
    sound.append([bytes(frame) for frame in encode(LogAppend(3, sealed, 0), b"x")])
    sound.append([bytes(frame) for frame in encode(Put(4, sealed, "chunk", FILE, 4), b"x", b"yzz")])
    understood = 0
    for _ in range(FRAMES):
        frames = [bytearray(frame) for frame in chance.choice(sound)]
        for _ in range(chance.choice((1, 1, 2, 8))):
            mutate(frames, chance)
        try:
            message, _ = decode([bytes(frame) for frame in frames], of_workers)
        except CodecError:
            continue
        understood += 1
        try:
            match message:
                case Put():
                    place = places.to_write(message)
                case Get():
                    place = places.to_read(message)
                case LogAppend():
                    place = places.log(message.grant)
                case _:
                    continue
        except NotAllowedError:
            continue
        assert run in place.parents
    assert understood > FRAMES // 20
