"""CartPole without velocities: the newest eight observations are tokens, from which a transformer infers the
velocities. `remuda train examples/transformer_policy.yaml` (or launch) trains this policy; see docs/learning.md."""

import gymnasium
import numpy as np
from gymnasium.wrappers import FrameStackObservation, TransformObservation


def make(render_mode=None):
    env = gymnasium.make("CartPole-v1", render_mode=render_mode)
    space = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float32)
    positions = TransformObservation(env, lambda seen: seen[[0, 2]] / np.float32([2.4, 0.2]), space)
    return FrameStackObservation(positions, 8)  # [8, 2]
