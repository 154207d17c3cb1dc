"""MuZero, the acting side without its search: the network's policy alone."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch

from remuda.policy.acting.distributions import Categorical, masked
from remuda.policy.algorithms.muzero.model_policy import ModelPolicy
from remuda.policy.algorithms.muzero.search.roots import logits_of
from remuda.policy.networks.tensors import to_tensor


class UnsearchedMuZero(ModelPolicy):
    """Takes the action that the network expects a search to prefer, or draws from its policy. This shows how much of
    the playing strength the search adds, and is many times as fast."""

    def act(
        self,
        observations: np.ndarray,
        exploration: Mapping[str, float],
        rng: np.random.Generator,
        *,
        deterministic: bool,
        legal: np.ndarray | None = None,
        state: np.ndarray | None = None,
    ) -> np.ndarray:
        """Choose actions [n] of the space's dtype among the legal ones: the likeliest, or drawn by their
        probabilities."""
        with torch.inference_mode():
            seen = to_tensor(self._observation.encode(observations), self._device)
            probabilities, _ = self.frozen.predict(self.frozen.represent(seen))
        logits = logits_of(probabilities.cpu().numpy())
        policy = Categorical(masked(logits, legal))
        return self._action.to_environment(policy.mode() if deterministic else policy.sample(rng))
