"""Train DQN on CartPole, then play two episodes with the best policy: python examples/from_python.py"""

import remuda
from remuda.evaluator import run_policy

config = {"name": "from_python", "env": {"id": "CartPole-v1"}, "policy": {"type": "dqn"}}
result = remuda.train(config, seed=1, stop={"stop_value": 195, "max_env_steps": 30_000}, on_exists="rename")
print(f"{result.reason} after {result.env_step} steps, best return {result.best_return}: {result.run_dir}")

env, get_action = remuda.load_policy(result.run_dir)
observation, info = env.reset(seed=0)
print(f"action {get_action(observation)}, value {remuda.load_value(result.run_dir)(observation):.1f}")
run_policy(env, get_action, episodes=2)
