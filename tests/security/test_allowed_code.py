"""What a submission names (`make: module:function`, weights) lies in what the operator of the coordinator allowed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from remuda.config.schema import ExperimentConfig
from remuda.coordinator.disk.allowed_code import OWN, AllowedCode
from remuda.coordinator.disk.run_folders import RunFolders
from remuda.coordinator.effects import PrepareRun, Requester
from remuda.coordinator.events import Received, RunRefused
from remuda.tests.coordinator.disk.test_run_folders import SUBMIT
from remuda.tests.coordinator.simulation import World
from remuda.tests.worker.leases import small_config
from remuda.wire.codec import Envelope
from remuda.wire.keys.authorized import Identity

EXPERIMENT = "eeeeeeee-0000-4000-8000-000000000001"


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """A folder that the operator allows, with a module and a package."""
    folder = tmp_path / "shared"
    (folder / "games" / "inner").mkdir(parents=True)
    for file in ("maze.py", "games/__init__.py", "games/chess.py", "games/inner/__init__.py"):
        (folder / file).touch()
    return folder


def config(source_dir: Path | None, **sections: object) -> ExperimentConfig:
    settings = {"name": "x", "env": {"id": "CartPole-v1"}, **sections}
    return ExperimentConfig.model_validate(settings | ({} if source_dir is None else {"source_dir": str(source_dir)}))


NAMING: dict[str, Callable[[str], dict[str, object]]] = {
    "env.make": lambda name: {"env": {"make": name}},
    "env.id": lambda name: {"env": {"id": name}},
    "policy.encoder": lambda name: {"policy": {"type": "dqn", "encoder": name}},
    "policy.network": lambda name: {"policy": {"type": "ppo", "network": name}},
    "policy.type": lambda name: {"policy": {"type": name}},
    "learner.optimizer": lambda name: {"learner": {"optimizer": name}},
    "policies.a.policy.type": lambda name: {
        "env": {"kind": "pettingzoo", "id": "pettingzoo.butterfly.pistonball_v6"},
        "policies": {"a": {"agents": ["*"], "policy": {"type": name}}},
    },
    "log.sinks": lambda name: {"log": {"sinks": ["csv", name]}},
}


@pytest.mark.parametrize("setting", NAMING)
def test_others_may_name_what_lies_in_an_allowed_folder_and_nothing_else(shared: Path, setting: str) -> None:
    """Installed modules could do anything, too."""

    def refusal(module: str, *allowed: Path, who: str = "alice", source_dir: Path = shared) -> str | None:
        return AllowedCode(allowed).refusal(config(source_dir, **NAMING[setting](f"{module}:Name")), who)

    for module in ("maze", "games.chess", "games.inner"):
        assert refusal(module, shared) is refusal(module, shared.parent) is None
    assert refusal("maze") is not None, "without allowed folders"
    for module in ("os", "maze.x", "games.poker", "games.nothing.x", "remuda"):
        why = refusal(module, shared)
        assert why is not None
        assert why.startswith(f"{setting} = '{module}:Name'")
        assert "--allow-code FOLDER" in why
        assert refusal(module, shared, who=OWN) is None, "the own user may"
    evil = shared.parent / "evil"
    evil.mkdir()
    (evil / "trick.py").touch()
    (shared / "trick.py").symlink_to(evil / "trick.py")
    (shared / "way").symlink_to(evil)
    for source_dir in (shared, shared / "way", Path(f"{shared}/../evil"), evil):
        assert refusal("trick", shared, source_dir=source_dir) is not None, "a link out of the folder is not inside"


def test_what_is_built_in_needs_no_folder() -> None:
    assert AllowedCode().refusal(config(Path("/home/alice")), "alice") is None
    assert AllowedCode().refusal(config(None, policy={"type": "ppo"}, log={"sinks": ["csv"]}), "alice") is None


@pytest.mark.parametrize(
    ("section", "setting"),
    [
        ("learner", "initialize_from"),
        ("learner", "initialize_from_demonstrations"),
        ("buffer", "demonstrations"),
        ("collector", "dataset"),
    ],
)
def test_weights_and_datasets_lie_in_an_allowed_folder(shared: Path, section: str, setting: str) -> None:
    inside = config(None, **{section: {setting: str(shared / "a.pth.tar")}})
    outside = config(None, **{section: {setting: "/home/you/secret.pth.tar"}})
    assert AllowedCode((shared,)).refusal(inside, "alice") is None
    assert setting in (AllowedCode((shared,)).refusal(outside, "alice") or "")
    assert AllowedCode((shared,)).refusal(outside, OWN) is None


@pytest.mark.parametrize("who", ["alice", "", OWN])
def test_a_submission_of_others_is_refused_before_anything_is_made(tmp_path: Path, who: str) -> None:
    folders = RunFolders(tmp_path / "runs")
    submit = replace(SUBMIT, config_json=config(tmp_path, env={"make": "os:system"}).model_dump_json())
    prepared = folders.prepare(PrepareRun(Requester(b"client", 7, who), EXPERIMENT, submit))
    if who == OWN:
        assert not isinstance(prepared, RunRefused)
        folders.close()
        return
    assert isinstance(prepared, RunRefused)
    assert prepared.rejection.code == "forbidden"
    assert "os:system" in prepared.rejection.reason
    assert not (tmp_path / "runs").exists()


def test_a_submission_is_that_of_the_key_it_was_sent_with() -> None:
    world = World(small_config())
    alice = Identity("alice", "operator")
    effects = world.coordinator.handle(Received(b"client:a", Envelope(1, 0, 1, SUBMIT), alice), 0.0)
    [prepare] = [effect for effect in effects if isinstance(effect, PrepareRun)]
    assert prepare.requester.who == "alice"


def test_the_module_of_an_environment_with_several_agents_is_code_too(shared: Path) -> None:
    def named(module: str) -> ExperimentConfig:
        return config(shared, env={"kind": "pettingzoo", "id": module})

    assert AllowedCode((shared,)).refusal(named("games.chess"), "alice") is None
    assert AllowedCode((shared,)).refusal(named("pettingzoo.butterfly.pistonball_v6"), "alice") is None
    for module in ("antigravity", "remuda.cli", "pettingzoo_of_mine.game"):
        why = AllowedCode((shared,)).refusal(named(module), "alice") or ""
        assert why.startswith(f"env.id = '{module}:'")
        assert AllowedCode((shared,)).refusal(named(module), OWN) is None
