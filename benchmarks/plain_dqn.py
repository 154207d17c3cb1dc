"""DQN's update as a plain torch loop writes it: autograd, and Adam of torch.optim in its fused form.

The same network, loss and clipping as `policy/algorithms/dqn/learning.py`, without its metrics and priorities.
"""

# torch's annotations are partial: pyright knows neither what these calls take nor what they return.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import copy
from collections.abc import Mapping

import numpy as np
import torch
from torch.nn.functional import smooth_l1_loss

from remuda.config.algorithms.q_learning import DqnConfig
from remuda.config.schema import ExperimentConfig


class PlainDqn:
    """Learns in place what `network` values actions at."""

    def __init__(self, config: ExperimentConfig, network: torch.nn.Module) -> None:
        assert isinstance(config.policy, DqnConfig), config.policy.type
        self._policy, self._learner = config.policy, config.learner
        self._online, self._target = network, copy.deepcopy(network)
        self._optimizer = torch.optim.Adam(network.parameters(), lr=config.learner.learning_rate, fused=True)
        self._updates = 0

    def learn(self, batch: Mapping[str, np.ndarray]) -> None:
        """One update from a batch of columns [n, …]."""
        columns = {name: torch.from_numpy(column) for name, column in batch.items()}
        action = columns["action"].unsqueeze(1)
        with torch.no_grad():
            values = self._target(columns["next_obs"])
            if self._policy.double:
                best = self._online(columns["next_obs"]).argmax(dim=1, keepdim=True)
                bootstrap = values.gather(1, best).squeeze(1)
            else:
                bootstrap = values.amax(dim=1)
            target = columns["reward"] + columns["discount"] * bootstrap
        q_value = self._online(columns["obs"]).gather(1, action).squeeze(1)
        loss = (columns["weights"] * smooth_l1_loss(q_value, target, reduction="none")).mean()
        self._optimizer.zero_grad()
        torch.autograd.backward(loss)
        if self._learner.max_grad_norm is not None:
            torch.nn.utils.clip_grad_norm_(self._online.parameters(), self._learner.max_grad_norm)
        self._optimizer.step()
        self._updates += 1
        if self._updates % self._policy.target_update_iters == 0:
            self._target.load_state_dict(self._online.state_dict())
