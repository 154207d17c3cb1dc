"""A user's script: mypy checks its types strictly, and a test runs it.

python user_script.py CONFIG RUN_DIR
"""

import sys
from pathlib import Path
from typing import assert_type

import remuda


def main(config: str, run_dir: str) -> None:
    result = remuda.train(config, run_dir=run_dir, progress=False, seed=3, stop={"max_env_steps": 300})
    assert_type(result, remuda.TrainingResult)
    assert_type(result.run_dir, Path)
    assert_type(result.env_step, int)
    assert_type(result.best_return, float | None)

    env, get_action = remuda.load_policy(result.run_dir)
    observation, _ = env.reset(seed=0)
    assert_type(get_action(observation, deterministic=True) in (0, 1), bool)
    value = remuda.load_value(result.run_dir)
    assert_type(value(observation), float)
    print(f"{result.state} {result.env_step} {get_action(observation)} {value(observation):.3f}")

    settings = remuda.ExperimentConfig.model_validate({"name": "loop", "env": {"id": "CartPole-v1"}})
    with remuda.run_context(f"{run_dir}_loop", settings) as run:
        run.log(env_step=1, returns=[1.0], lengths=[1])
    assert_type(remuda.__version__, str)

    try:
        remuda.train(settings, run_dir=run_dir, learner={"bath_size": 8})
    except remuda.ConfigError as error:
        print(error)


def ask(connection_file: Path) -> int:
    """How many experiments a coordinator has."""
    with remuda.Client(connection_file) as client:
        return len(client.status().experiments)


if __name__ == "__main__":
    main(*sys.argv[1:])
