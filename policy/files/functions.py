"""Trained policies as plain functions, for scripts: from an observation to an action, or to a value."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, Protocol

import numpy as np

from remuda.environments.legal_actions import legal_of_mask, without_any
from remuda.environments.make import SingleEnv
from remuda.environments.rebuild import rebuild
from remuda.policy.base import ValuingActor
from remuda.policy.files.playable import (
    Playable,
    checkpoint_playable,
    find_checkpoint,
    model_playable,
    of_run,
    onnx_playable,
    require_fit,
)
from remuda.policy.networks.tensors import threads
from remuda.storage.run_folder import RunFolder, is_model, is_onnx

Which = int | Literal["best", "last", "model"]
"""A checkpoint by its train_iter, the best (the last where none was evaluated), the last, or model/."""


class GetAction(Protocol):
    """Maps one observation, as the environment gives it, to one action, as the environment takes it: an int for
    Discrete actions, otherwise an array. Of a Tuple or Dict of actions, which is packed, it has all integers in order.

    `legal_actions` has a number for each action, 0 where it is illegal now, as environments give it in
    `info["action_mask"]`; None: all are legal. Algorithms that do not use it choose without. Raises ValueError where
    none is legal.

    Call `begin_episode` whenever an episode begins: a recurrent policy remembers the observations since then.
    """

    @property
    def uses_legal_actions(self) -> bool:
        """Whether the algorithm uses them."""
        ...

    def begin_episode(self) -> None:
        """The next observation is the first of an episode. Changes nothing for policies that are not recurrent."""
        ...

    def __call__(
        self, observation: object, *, deterministic: bool = True, legal_actions: object = None
    ) -> int | np.ndarray: ...


class _EpisodeState:
    """What an actor remembers of the episode that it plays or values."""

    def __init__(self, actor: ValuingActor) -> None:
        self._actor = actor
        self._state = np.zeros((1, actor.state_size), np.float32) if actor.state_size else None

    def begin_episode(self) -> None:
        """The next observation is the first of an episode. Changes nothing for policies that are not recurrent."""
        if self._state is not None:
            self._state[:] = 0.0


class GetValue(_EpisodeState):
    """Maps one observation to the return expected from there on. `begin_episode` is that of GetAction."""

    def __call__(self, observation: object) -> float:
        with threads(1):
            return float(self._actor.value(np.asarray(observation)[None], state=self._state)[0])


def load_policy(
    run_dir: str | Path,
    which: Which = "best",
    *,
    env: SingleEnv | None = None,
    render_mode: str | None = None,
    trust_code: bool = False,
    search: bool = True,
) -> tuple[SingleEnv, GetAction]:
    """Load a run's environment and its policy: (env, get_action).

    `run_dir` may also be a model/ folder that was copied elsewhere, or an ONNX file that `remuda export` wrote. The
    environment is built again, with `render_mode` (gymnasium's: human, rgb_array), unless you pass your own `env`. With
    `trust_code`, code runs that somebody else may have put into the folder (its config's environment, model.pt), and
    the copy in vars.pkl is used if the environment cannot be built: use it only if you trust the author of the folder.

    Raises EnvironmentBuildError if the environment cannot be built (`load_action` needs none) or the policy does not
    fit it, and what `load_action` raises.
    """
    playable = load_playable(run_dir, which, trust_code=trust_code, search=search)
    if env is None:
        env = rebuild(
            playable.env,
            source_dir=playable.source_dir,
            run_dir=Path(run_dir).parent if is_onnx(Path(run_dir)) else Path(run_dir),
            render_mode=render_mode,
            trust_code=trust_code,
        )
    require_fit(playable, env)
    return env, function_of(playable)


def load_action(
    run_dir: str | Path, which: Which = "best", *, trust_code: bool = False, search: bool = True
) -> GetAction:
    """Load a run's policy alone, as a function from one observation to one action; no environment is built.

    If not deterministic, it explores as the run did at that checkpoint (from model/: as at the end of its schedule),
    the same way every time it is loaded. With `trust_code` it also opens model.pt of another user. With `search=False`
    a policy that searches acts by its network alone; one that does not search is refused.

    torch computes each action with one thread, which is fastest for a single observation, and has its own number of
    threads again afterwards.

    Raises CheckpointError, CheckpointIndexError, ConfigError.
    """
    return function_of(load_playable(run_dir, which, trust_code=trust_code, search=search))


def load_value(run_dir: str | Path, which: Which = "best", *, trust_code: bool = False) -> GetValue:
    """Load a run's value function, from one observation to the return expected from there on. Of a recurrent policy it
    has to be given every observation of an episode, and its `begin_episode` is called before the first.

    Raises CheckpointError, CheckpointIndexError, ConfigError.
    """
    return GetValue(load_playable(run_dir, which, trust_code=trust_code).actor)


def load_playable(run_dir: str | Path, which: Which, *, trust_code: bool = False, search: bool = True) -> Playable:
    """Find a policy of a run folder, or the one of a model/ folder or of an exported ONNX file, whatever `which`
    says."""
    folder = Path(run_dir)
    if is_onnx(folder):
        return onnx_playable(folder, trust_code=trust_code, search=search)
    if is_model(folder):
        return model_playable(folder, trust_code=trust_code, search=search)
    if which == "model":
        return of_run(model_playable(RunFolder(folder).model, trust_code=trust_code, search=search), folder)
    path = find_checkpoint(folder, which)
    return of_run(checkpoint_playable(path, trust_code=trust_code, search=search), folder)


def function_of(playable: Playable) -> GetAction:
    """The policy as a function from one observation to one action."""
    return _Function(playable)


class _Function(_EpisodeState):
    """A GetAction."""

    def __init__(self, playable: Playable) -> None:
        super().__init__(playable.actor)
        self._playable = playable
        self._rng = np.random.default_rng(playable.seed)

    @property
    def uses_legal_actions(self) -> bool:
        return self._actor.uses_legal_actions

    def __call__(
        self, observation: object, *, deterministic: bool = True, legal_actions: object = None
    ) -> int | np.ndarray:
        actor, exploration, spec = self._actor, self._playable.exploration, self._playable.action
        legal = None
        if actor.uses_legal_actions and legal_actions is not None and spec.components:
            legal = legal_of_mask(legal_actions, components=spec.components)
            if without_any(legal, spec.components).any():
                raise ValueError("legal_actions has no legal action, so there is nothing to choose")
        with threads(1):
            seen = np.asarray(observation)[None]
            chosen = actor.act(
                seen, exploration, self._rng, deterministic=deterministic, legal=legal, state=self._state
            )
        action: np.ndarray = chosen[0]
        return int(action) if spec.n is not None else action
