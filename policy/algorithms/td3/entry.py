"""TD3 without torch: acting side and entry."""

from __future__ import annotations

from remuda.config.algorithms.twin_critics import Td3Config
from remuda.config.declaration import Declaration
from remuda.config.schema import ExperimentConfig
from remuda.policy.acting.network import PLAIN, Chosen, Inference
from remuda.policy.algorithms.twin_critics.acting import TwinCriticLayout, TwinCriticPolicy, declared
from remuda.policy.base import Policy
from remuda.policy.entry import BuiltInEntry, Setup
from remuda.policy.spaces import ActionSpec, ObservationSpec

NOISE = "noise"
"""Name of the exploration of Policy.act: the standard deviation of the noise on actions in -1 … 1."""


def make_td3_policy(
    config: Td3Config, observation: ObservationSpec, action: ActionSpec, inference: Inference = PLAIN
) -> TwinCriticPolicy:
    """Make a policy that takes tanh of the actor's outputs. Raises UnsupportedSpaceError."""
    return TwinCriticPolicy(config, td3_layout(config, action), observation, action, "unit_action", inference)


def td3_layout(config: Td3Config, action: ActionSpec) -> TwinCriticLayout:
    """The network's layers. Raises UnsupportedSpaceError."""
    action.bounded(by="td3")
    return TwinCriticLayout(config.hidden, action.outputs, action.outputs, 1, has_temperature=False)


class Td3Entry(BuiltInEntry[Td3Config]):
    """See AlgorithmEntry."""

    settings = Td3Config
    learner = "remuda.policy.algorithms.td3.learning:Td3"

    def declaration(self, config: ExperimentConfig, settings: Td3Config) -> Declaration:
        """Random actions at first; then the actor's, with noise."""
        return declared(config, settings, exploration={NOISE: ((0, settings.exploration_noise),)})

    def make_policy(self, setup: Setup[Td3Config], *, chosen: Chosen = None, device: str = "cpu") -> Policy:
        return make_td3_policy(setup.settings, setup.observation, setup.action, setup.inference(chosen, device))
