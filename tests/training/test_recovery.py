"""A run is resumed only with rows of the shape that its stored rows have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from remuda.config.dump import write_configs
from remuda.config.schema import ExperimentConfig
from remuda.storage.existing_folder import RunFolderError
from remuda.storage.run_folder import RunFolder
from remuda.training.recovery import check_rows

PPO = {"type": "ppo", "horizon_steps": 16}
MUZERO = {"type": "muzero", "unroll_steps": 5, "n_step": 5}


def config(policy: dict[str, Any]) -> ExperimentConfig:
    return ExperimentConfig.model_validate({"name": "x", "env": {"id": "CartPole-v1"}, "policy": policy})


@pytest.mark.parametrize(
    ("former", "now", "changed"),
    [
        (PPO, PPO | {"horizon_steps": 32}, "horizon_steps 16 (now 32)"),
        (MUZERO, MUZERO | {"unroll_steps": 3, "n_step": 4}, "unroll_steps 5 (now 3), n_step 5 (now 4)"),
        (PPO, {"type": "dqn"}, "kind segments (now steps)"),
    ],
)
def test_rows_of_another_shape_are_refused(
    tmp_path: Path, former: dict[str, Any], now: dict[str, Any], changed: str
) -> None:
    write_configs(tmp_path, config(former), {})
    with pytest.raises(RunFolderError) as refusal:
        check_rows(RunFolder(tmp_path), {"": config(now)})
    assert f"cannot be resumed: its stored rows have {changed}. Resume with the former settings" in str(refusal.value)


@pytest.mark.parametrize(
    ("former", "now"),
    [({"type": "dqn", "n_step": 1}, {"type": "dqn", "n_step": 3}), (PPO, PPO | {"discount": 0.9, "epochs": 2})],
)
def test_settings_that_leave_the_shape_may_change(tmp_path: Path, former: dict[str, Any], now: dict[str, Any]) -> None:
    write_configs(tmp_path, config(former), {})
    check_rows(RunFolder(tmp_path), {"": config(now)})


@pytest.mark.parametrize(
    ("policy", "said"),
    [
        (
            {"type": "dqn"},
            {"": "the replay's stored steps keep the discount 0.99 until they are evicted; only new steps "},
        ),
        (MUZERO, {}),  # the learner discounts unrolls
    ],
)
def test_stored_steps_keep_their_discount_and_a_warning_says_so(
    tmp_path: Path, policy: dict[str, Any], said: dict[str, str]
) -> None:
    write_configs(tmp_path, config(policy | {"discount": 0.99}), {})
    warned = check_rows(RunFolder(tmp_path), {"": config(policy | {"discount": 0.9})})
    assert {name: text.partition("have ")[0] for name, text in warned.items()} == said
    assert check_rows(RunFolder(tmp_path), {"": config(policy | {"discount": 0.99})}) == {}
