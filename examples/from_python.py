"""Train DQN on CartPole, then play an episode with the best policy: python examples/from_python.py"""

import remuda

config = {"name": "from_python", "env": {"id": "CartPole-v1"}, "policy": {"type": "dqn"}}
result = remuda.train(config, seed=1, stop={"stop_value": 195, "max_env_steps": 30_000}, on_exists="rename")
print(f"{result.reason} after {result.env_step} steps, best return {result.best_return}: {result.run_dir}")

env, get_action = remuda.load_policy(result.run_dir)
observation, info = env.reset(seed=0)
steps, over = 0, False
while not over:
    observation, reward, terminated, truncated, info = env.step(get_action(observation))
    steps, over = steps + 1, terminated or truncated
print(f"an episode of {steps} steps; value at its end {remuda.load_value(result.run_dir)(observation):.1f}")
