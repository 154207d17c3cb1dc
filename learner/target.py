"""Publishes the target network for the workers that compute stored rows again with it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import cast

from remuda.config.schema import ExperimentConfig
from remuda.learner.publisher import Publisher
from remuda.policy.algorithms import reanalyzed_by_workers
from remuda.policy.base import Algorithm, ReanalyzingAlgorithm
from remuda.policy.files.policy_file import publish
from remuda.storage.atomic import Replacing
from remuda.storage.run_folder import RunFolder, target_file
from remuda.wire.messages import Assign, TargetPublished
from remuda.worker.link import Link


class TargetPublisher:
    """Publishes the target network whenever it has changed, from a thread of its own, as policies are published.

    The policy's file and the target network's have versions of their own, under the same epoch.
    """

    def __init__(self, algorithm: ReanalyzingAlgorithm, publisher: Publisher) -> None:
        """From now on `algorithm` computes no stored rows again itself."""
        algorithm.leave_reanalysis()
        self._algorithm = algorithm
        self._publisher = publisher
        self._offered_iter = -1

    @classmethod
    def of(
        cls,
        config: ExperimentConfig,
        algorithm: Algorithm,
        assign: Assign,
        link: Link,
        *,
        folder: RunFolder,
        say: Callable[[str], None],
        replace: Replacing,
    ) -> TargetPublisher | None:
        """What a learner's lease needs; None if the experiment asks for no reanalyzers. `say` is called from the
        publishing thread."""
        if reanalyzed_by_workers(config) is None:
            return None
        publisher = Publisher(
            folder.policy / target_file(assign.policy_file),
            assign.epoch,
            published=lambda ref: link.send(TargetPublished(assign.lease, ref)),
            say=say,
            write=partial(publish, replace=replace),
        )
        return cls(cast("ReanalyzingAlgorithm", algorithm), publisher)

    @property
    def is_due(self) -> bool:
        """Whether the target network has changed since it was offered, and can be published now."""
        return self._algorithm.target_iter != self._offered_iter and self._publisher.ready

    def offer(self) -> None:
        """Publish the target network as soon as possible. Raises what ended the publishing thread."""
        self._offered_iter = self._algorithm.target_iter
        self._publisher.offer(self._algorithm.target_state(), self._offered_iter)

    def close(self) -> None:
        """End the publishing thread."""
        self._publisher.close()
