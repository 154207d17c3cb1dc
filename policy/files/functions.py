"""Trained policies as plain functions, for scripts: from an observation to an action, or to a value."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np

from remuda.environments.legal_actions import legal_of_mask, without_any
from remuda.environments.make import SingleEnv
from remuda.environments.rebuild import rebuild
from remuda.policy.files.playable import (
    Playable,
    checkpoint_playable,
    exported_playable,
    find_checkpoint,
    of_run,
    require_fit,
)
from remuda.policy.networks.tensors import threads
from remuda.storage.run_folder import folder_of_policy, is_model, is_onnx

Which = int | Literal["best", "last", "model"]
"""A checkpoint by its train_iter, the best (without evaluations the last), the last, or model/."""


class _EpisodeState:
    """State of an actor within an episode."""

    def __init__(self, playable: Playable) -> None:
        self._playable, self._actor = playable, playable.actor
        self._state = np.zeros((1, self._actor.state_size), np.float32) if self._actor.state_size else None

    def begin_episode(self) -> None:
        """Start a new episode with the next observation. No effect on policies that are not recurrent."""
        if self._state is not None:
            self._state[:] = 0.0


class GetAction(_EpisodeState):
    """Maps an observation of the environment to an action for the environment: an int for Discrete actions, otherwise
    an array. For a Tuple or Dict of actions, which is packed, the array has all integers in order.

    `legal_actions` has a number per action, 0 for illegal actions, as in the environment's `info["action_mask"]`; None:
    all are legal. Algorithms without legal actions ignore it. Raises ValueError if no action is legal.

    Call `begin_episode` at the begin of every episode: a recurrent policy remembers the observations since then.
    """

    def __init__(self, playable: Playable) -> None:
        super().__init__(playable)
        self._rng = np.random.default_rng(playable.seed)

    @property
    def uses_legal_actions(self) -> bool:
        """True if the algorithm uses legal actions."""
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


class GetValue(_EpisodeState):
    """Maps an observation to the expected return of the rest of the episode. For `begin_episode` see GetAction."""

    def __call__(self, observation: object) -> float:
        with threads(1):
            return float(self._actor.value(np.asarray(observation)[None], state=self._state)[0])


def load_policy(
    run_dir: str | Path,
    which: Which = "best",
    *,
    policy: str = "",
    env: SingleEnv | None = None,
    render_mode: str | None = None,
    trust_code: bool = False,
    search: bool = True,
) -> tuple[SingleEnv, GetAction]:
    """Load a run's environment and its policy: (env, get_action).

    Args:
        run_dir: a run folder, a copied model/ folder, or an ONNX file of `remuda export`.
        which: the checkpoint.
        policy: name of one of several policies.
        env: plays in this environment; None: the environment is built again.
        render_mode: gymnasium's for the new environment: human, rgb_array.
        trust_code: run code that other people may have put into the folder (its config's environment, model.pt), and
            use the copy in vars.pkl if the environment cannot be built. Only for folders whose author you trust.
        search: False: act by the network alone.

    Raises EnvironmentBuildError if the environment cannot be built (`load_action` needs none) or the policy does not
    fit it, and the errors of `load_action`.
    """
    playable = load_playable(run_dir, which, policy=policy, trust_code=trust_code, search=search)
    if env is None:
        env = rebuild(
            playable.env,
            source_dir=playable.source_dir,
            run_dir=Path(run_dir).parent if is_onnx(Path(run_dir)) else Path(run_dir),
            render_mode=render_mode,
            trust_code=trust_code,
        )
    require_fit(playable, env)
    return env, GetAction(playable)


def load_action(
    run_dir: str | Path, which: Which = "best", *, policy: str = "", trust_code: bool = False, search: bool = True
) -> GetAction:
    """Load a run's policy alone, as a function from an observation to an action; builds no environment. `policy` names
    one of several policies.

    With `deterministic=False` it explores as the run did at that checkpoint (from model/: as at the end of its
    schedule), with the same random numbers after every load. `trust_code` also opens model.pt of another user. With
    `search=False` a policy that searches acts by its network alone; other policies are refused.

    torch computes each action with one thread, fastest for a single observation, and gets its number of threads back
    afterwards.

    Raises CheckpointError, CheckpointIndexError, ConfigError.
    """
    return GetAction(load_playable(run_dir, which, policy=policy, trust_code=trust_code, search=search))


def load_value(run_dir: str | Path, which: Which = "best", *, policy: str = "", trust_code: bool = False) -> GetValue:
    """Load a run's value function, from an observation to the expected return from there on. A recurrent policy needs
    every observation of an episode, after a call of `begin_episode`. `policy` names one of several policies.

    Raises CheckpointError, CheckpointIndexError, ConfigError.
    """
    return GetValue(load_playable(run_dir, which, policy=policy, trust_code=trust_code))


def load_playable(
    run_dir: str | Path, which: Which, *, policy: str = "", trust_code: bool = False, search: bool = True
) -> Playable:
    """Load a policy of a run folder, or of a model/ folder or exported ONNX file, where `which` and `policy` are
    ignored."""
    folder = Path(run_dir)
    if is_onnx(folder) or is_model(folder):
        return exported_playable(folder, trust_code=trust_code, search=search)
    if which == "model":
        model = folder_of_policy(folder, policy).model
        return of_run(exported_playable(model, trust_code=trust_code, search=search), folder, policy)
    path = find_checkpoint(folder, which, policy=policy)
    return of_run(checkpoint_playable(path, run_dir=folder, trust_code=trust_code, search=search), folder, policy)
