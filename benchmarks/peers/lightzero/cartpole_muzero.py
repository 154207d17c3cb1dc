"""LightZero: MuZero on CartPole-v0 with its example's settings, seconds from start of training to a return of 195."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import sys
import tempfile
import time

from ding.worker.learner import LearnerHook, register_learner_hook
from easydict import EasyDict
from lzero.entry import train_muzero

ENVIRONMENTS = 8
EVALUATED_EPISODES = 10
STOP_VALUE = 195
MAX_ENV_STEPS = 100_000
CAP_S = 600.0
"""A run that is not over by then counts as this long, which flatters it."""


class OutOfTimeError(Exception):
    """The run is not over after the cap."""


class Clock(LearnerHook):
    """Notes when the loop begins and when it ends, counts, and ends a run that takes too long."""

    begin_s = end_s = 0.0
    cap_s = CAP_S
    env_steps = updates = 0

    def __init__(self, *args: object, ext_args: object = None, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)

    def __call__(self, engine: object) -> None:
        """Learner hooks are called with the learner."""
        Clock.end_s = time.perf_counter()
        if self.position == "before_run":
            Clock.begin_s = Clock.end_s
        Clock.env_steps, Clock.updates = engine.collector_envstep, engine.train_iter
        if Clock.end_s - Clock.begin_s > Clock.cap_s:
            raise OutOfTimeError


def main() -> None:
    """Train in a temporary folder, quietly, and print one JSON line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cap", type=float, default=CAP_S)
    options = parser.parse_args()
    Clock.cap_s = options.cap
    register_learner_hook("clock", Clock)
    over = False
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(sys.stderr):
        os.chdir(folder)
        with contextlib.suppress(OutOfTimeError):
            train_muzero([_main_config(), _create_config()], seed=options.seed, max_env_step=MAX_ENV_STEPS)
            over = True
        os.chdir("/")
    elapsed_s = min(Clock.end_s - Clock.begin_s, options.cap)
    facts = {
        "value": elapsed_s,
        "reached": over and Clock.env_steps < MAX_ENV_STEPS,  # otherwise the steps have ended it
        "env_steps": Clock.env_steps,
        "updates": Clock.updates,
        "env_steps_per_s": Clock.env_steps / elapsed_s,
        "updates_per_s": Clock.updates / elapsed_s,
        "peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "seed": options.seed,
    }
    print(json.dumps(facts))


def _main_config() -> EasyDict:
    """Return the settings of its example for CartPole, except for the evaluation: ten episodes, each in an environment
    of its own as there, and 195 is enough. All else is its defaults."""
    model = {
        "observation_shape": 4,
        "action_space_size": 2,
        "model_type": "mlp",
        "lstm_hidden_size": 128,
        "latent_state_dim": 128,
        "self_supervised_learning_loss": True,
        "discrete_action_encoding_type": "one_hot",
        "norm_type": "BN",
    }
    environments = {"collector_env_num": ENVIRONMENTS, "evaluator_env_num": EVALUATED_EPISODES}
    hooks = {
        f"clock_{position}": {"name": f"clock_{position}", "type": "clock", "priority": 1, "position": position}
        for position in ("before_run", "after_iter", "after_run")
    }
    policy = {
        "use_wandb": False,
        "model": model,
        "model_path": None,
        "cuda": False,
        "env_type": "not_board_games",
        "action_type": "varied_action_space",
        "game_segment_length": 50,
        "update_per_collect": 100,
        "batch_size": 256,
        "optim_type": "Adam",
        "piecewise_decay_lr_scheduler": False,
        "learning_rate": 0.003,
        "ssl_loss_weight": 2,
        "num_simulations": 25,
        "reanalyze_ratio": 0,
        "n_episode": ENVIRONMENTS,
        "eval_freq": 100,
        "replay_buffer_size": int(1e6),
        **environments,
        "learn": {"learner": {"hook": hooks}},
    }
    environment = {
        "env_id": "CartPole-v0",
        "stop_value": STOP_VALUE,
        "continuous": False,
        "manually_discretization": False,
        "n_evaluator_episode": EVALUATED_EPISODES,
        "manager": {"shared_memory": False},
        **environments,
    }
    return EasyDict({"exp_name": "cartpole_muzero", "env": environment, "policy": policy})


def _create_config() -> EasyDict:
    return EasyDict(
        {
            "env": {
                "type": "cartpole_lightzero",
                "import_names": ["zoo.classic_control.cartpole.envs.cartpole_lightzero_env"],
            },
            "env_manager": {"type": "subprocess"},
            "policy": {"type": "muzero", "import_names": ["lzero.policy.muzero"]},
        }
    )


if __name__ == "__main__":
    main()
