"""Run folders with checkpoints, for tests of loading."""

from __future__ import annotations

import json
from pathlib import Path

from remuda.config.dump import config_json_text
from remuda.config.environment import EnvConfig
from remuda.learner import checkpoint
from remuda.policy.algorithms.dqn.learning import Dqn
from remuda.policy.files.model_artifact import Exporter
from remuda.storage.checkpoint_index import CheckpointIndex
from remuda.storage.run_folder import RunFolder
from remuda.tests.policy.cases import config, dqn
from remuda.wire.messages import Counters, PolicyRef


def save(run: Path, algorithm: Dqn, train_iter: int) -> Path:
    """Add a checkpoint; returns its file."""
    folder = RunFolder(run)
    folder.ckpt.mkdir(exist_ok=True)
    counters = Counters(env_step=train_iter * 10, train_iter=train_iter)
    progress = checkpoint.Progress(counters, PolicyRef(), {"epsilon": 0.5})
    path = folder.checkpoint(train_iter)
    CheckpointIndex(folder.ckpt).add(checkpoint.save(path, algorithm, progress, config=config()))
    return path


def save_three(run: Path) -> list[Dqn]:
    """A run with checkpoints 0, 1 and 2, checkpoint 2 as model/, and its config; returns the algorithms."""
    algorithms = [dqn(seed=seed) for seed in range(3)]
    for train_iter, algorithm in enumerate(algorithms):
        save(run, algorithm, train_iter)
    Exporter(algorithms[2], config()).export(run / "model", Counters(env_step=20, train_iter=2))
    (run / "config.json").write_text(config_json_text(config()))
    return algorithms


def lose_environment(run: Path) -> None:
    """Make the run's config name an environment that does not exist."""
    content = json.loads((run / "config.json").read_text())
    content["env"] |= {"id": None, "make": "gone:make"}
    (run / "config.json").write_text(json.dumps(content))


def export_without_environment(model: Path) -> None:
    """Make a model/ folder with an environment that does not exist."""
    made = dqn()
    gone = config().model_copy(update={"env": EnvConfig(make="gone:make")})
    Exporter(made, gone).export(model, Counters())
