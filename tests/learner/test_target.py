"""The target network is published for reanalyzers after each change, in a separate file."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import numpy as np
import pytest

from remuda.learner.publisher import TargetPublisher
from remuda.policy.algorithms.muzero.learning import MuZero
from remuda.policy.files.policy_file import load, read_ref
from remuda.storage.atomic import replacing
from remuda.storage.run_folder import target_file
from remuda.tests.patience import until
from remuda.tests.policy.algorithms.muzero.cases import batch, changed, muzero
from remuda.tests.worker.leases import algorithm_of, assign_to, new_run, small_config
from remuda.tests.worker.recording_link import RecordingLink
from remuda.wire.messages import PolicyRef, TargetPublished

MUZERO = {"type": "muzero", "hidden": (9,), "latent": 8, "support_size": 5, "reanalyze_ratio": 0.5}


def test_it_is_published_whenever_it_has_changed(tmp_path: Path) -> None:
    run, link = new_run(tmp_path), RecordingLink()
    config = small_config(policy=MUZERO, reanalyzer={"count": 1})
    assign = assign_to(run, config, lease=4)
    policy = changed(target_update_iters=2, reanalyze_ratio=1.0)
    algorithm = muzero(policy)
    publisher = TargetPublisher.of(config, algorithm, assign, link, folder=run, say=pytest.fail, replace=replacing)
    assert publisher is not None
    path = run.policy / target_file(assign.policy_file)
    assert path.name.startswith("target_")
    try:
        for update in range(5):
            if update % 2 == 0:
                until(lambda: publisher.is_due, "the target network is due")
                publisher.offer()
                until(lambda: len(link.sent) > update // 2, "it is published")  # noqa: B023  (called at once)
                assert read_ref(path) == PolicyRef(1, update // 2, update)
                loaded = load(path)
                assert loaded is not None
                for name, array in algorithm.target_state().items():
                    np.testing.assert_array_equal(loaded.state[name], array)
            assert not publisher.is_due
            algorithm.learn(batch(np.random.default_rng(update)))
        until(lambda: len(link.sent) == 3, "each was said")
    finally:
        publisher.close()
    assert link.sent == [TargetPublished(4, PolicyRef(1, version, 2 * version)) for version in range(3)]
    assert algorithm._reanalyze_ratio == 0.0, "workers do it"


@pytest.mark.parametrize("sections", [{}, {"reanalyzer": {"count": 0}, "policy": MUZERO}])
def test_without_reanalyzers_there_is_none_and_the_learner_does_it(tmp_path: Path, sections: dict[str, object]) -> None:
    config = small_config(**sections)
    algorithm = algorithm_of(config)
    run = new_run(tmp_path)
    assign = assign_to(run, config)
    made = TargetPublisher.of(
        config, algorithm, assign, RecordingLink(), folder=run, say=pytest.fail, replace=replacing
    )
    assert made is None
    if "policy" in sections:
        assert cast("MuZero", algorithm)._reanalyze_ratio == 0.5
