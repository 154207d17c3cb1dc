"""How much to explore, and how much of the sampling bias to undo, at this point of a run. Imports no torch."""

from __future__ import annotations

from remuda.config.schema import BufferConfig, DqnConfig, ExperimentConfig, PolicyConfig, StopConfig


def linear(start: float, end: float, *, duration: int, at: int) -> float:
    """Go from `start` at 0 to `end` at `duration` in a straight line and stay there."""
    done = min(max(at / duration, 0.0), 1.0)
    return (1.0 - done) * start + done * end  # exact at both ends, unlike start + done * (end - start)


class Exploration:
    """What collectors are told about exploring: for DQN, epsilon, the share of random actions; for policies that are
    distributions themselves, nothing. Where nothing is learned it is the least there ever is.

    The schedule counts accepted environment steps, so it goes on where it was after a restart.
    """

    def __init__(self, config: ExperimentConfig) -> None:
        """What does not change is worked out once: a coordinator asks for every chunk."""
        policy = config.policy
        self._epsilon: tuple[float, float, int] | None = None
        """At the start, at the end, and how many steps lie between."""
        self._ended = config.learner.inference
        if isinstance(policy, DqnConfig):
            self._epsilon = policy.epsilon_start, policy.epsilon_end, epsilon_decay_env_steps(policy, config.stop)

    def at(self, env_step: int) -> dict[str, float]:
        """After so many steps."""
        if self._epsilon is None:
            return {}
        start, end, duration = self._epsilon
        if self._ended or env_step >= duration:
            return {"epsilon": end}
        return {"epsilon": linear(start, end, duration=duration, at=env_step)}


def exploration(config: ExperimentConfig, *, env_step: int) -> dict[str, float]:
    """See Exploration."""
    return Exploration(config).at(env_step)


def epsilon_decay_env_steps(policy: DqnConfig, stop: StopConfig) -> int:
    """Environment steps until exploration is at its least."""
    if policy.epsilon_decay_env_steps is not None:
        return policy.epsilon_decay_env_steps
    return max(1, min(stop.max_env_steps // DECAY_PARTS, LONGEST_DECAY_ENV_STEPS))


DECAY_PARTS = 5
"""Exploration falls over one of so many parts of a run."""
LONGEST_DECAY_ENV_STEPS = 1_000_000


def least_exploration(policy: PolicyConfig) -> dict[str, float]:
    """What the schedule ends at."""
    return {"epsilon": policy.epsilon_end} if isinstance(policy, DqnConfig) else {}


def importance_beta(buffer: BufferConfig, train_iter: int) -> float:
    """The exponent of the importance weights (Schaul et al. 2016, section 3.4): rises linearly to 1."""
    return linear(buffer.importance_exponent, 1.0, duration=buffer.importance_anneal_iters, at=train_iter)
