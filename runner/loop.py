"""The serial run itself: collector, replay index, learner, evaluator and commander called in turn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from msgspec import structs

from remuda.collector.environments import Environments
from remuda.collector.rollout import Rollout
from remuda.learner.loop import DivergedError
from remuda.runner.components import RunHooks
from remuda.runner.side import PolicySide
from remuda.runner.timing_report import TimingReport
from remuda.storage.run_folder import PolicyFolder
from remuda.training.commander.commander import Decision, Save
from remuda.training.commander.end import ON_REQUEST, End
from remuda.training.commander.evaluation import BestCheckpoint
from remuda.training.commander.together import all_solved, joined_counters, last_returns, mean_return
from remuda.training.journal import together
from remuda.wire.messages import Counters, ExperimentStatus, Task


class SerialLoop:
    """One run. `work` until it is to end, then `finish`; after an exception, `fail` instead.

    Several policies collect together, learn in turn, are saved and committed together, and end together.
    """

    def __init__(
        self,
        sides: Sequence[PolicySide],
        collector: Rollout,
        environments: Environments,
        hooks: RunHooks,
        timing: TimingReport,
        *,
        stop_value: float | None = None,
    ) -> None:
        """`collector` steps the `environments`. `stop_value` ends the run once all of several policies have reached it;
        a single one knows its own."""
        self._sides, self._collector, self._hooks = tuple(sides), collector, hooks
        self._environments, self._task = environments, Task()
        self._timing = timing
        self._timers = sides[0].components.timers
        self._stop_value = stop_value

    # --- the run ---

    def work(self) -> None:
        """Collect and learn in turn until a commander has ended the run."""
        begun = [side.begin() for side in self._sides]
        self._follow_task()
        started = [side.commander.started() for side in self._sides]
        self._carry_out([[*first, *then] for first, then in zip(begun, started, strict=True)])
        self._look_around()  # a resumed run may be over already
        while self._ending is None:
            if not self._learn([side.batches_due() for side in self._sides]):
                self._collect()
            self._look_around()

    def finish(self) -> End:
        """Learn from the last chunk, save the last checkpoints, have them evaluated, write the last rows; returns why
        the run ended."""
        end = self._ending
        assert end is not None, "only a run that ended is finished"
        while end.catches_up and not self._hooks.stop.ending:
            if not self._learn([side.batches_owed() for side in self._sides]):
                break
        self._carry_out([side.commander.save_final() for side in self._sides])
        end = self._failed or end  # by a callback
        self._close_books(end)
        return end

    def fail(self, error: Exception, traceback: str) -> End:
        """Save what can be saved after an exception, and log what happened."""
        why = f"{type(error).__name__}: {error}"
        end = End(why, why)
        for side in self._sides:
            side.components.logbook.say("commander", f"the run failed:\n{traceback}", level="error")
            side.commander.abandon_work()
            side.commander.fail(end)
        try:
            if not isinstance(error, DivergedError):
                self._carry_out([side.commander.save_final() for side in self._sides])
        except Exception as second:  # whatever broke the run may break this too
            text = f"the last checkpoint could not be saved: {type(second).__name__}: {second}"
            for side in self._sides:
                side.components.logbook.say("commander", text, level="error")
        self._close_books(end)
        return end

    def _close_books(self, end: End) -> None:
        for side in self._sides:
            side.finish(end, self._hooks.clock())
        self._timing.report(self.counters(), self._hooks.clock(), last=True)
        for side in self._sides:
            side.conclude(end)
        self._hooks.on_progress(self.joined(self._sides[0].status()))

    # --- what holds ---

    @property
    def best(self) -> BestCheckpoint | None:
        """The best checkpoint so far; None where each of several policies has its own."""
        return self._sides[0].commander.best if len(self._sides) == 1 else None

    def of_policies(self) -> dict[str, tuple[Counters, BestCheckpoint | None]]:
        """Counters and best checkpoint of each of several policies, by name."""
        named = [(side.components.folder, side) for side in self._sides]
        return {
            folder.policy_name: (side.counters(), side.commander.best)
            for folder, side in named
            if isinstance(folder, PolicyFolder)
        }

    def counters(self) -> Counters:
        """The present counters. Of several policies those of learning are sums; steps of the environment count once,
        however many of its agents act."""
        return joined_counters([side.counters() for side in self._sides])

    def joined(self, status: ExperimentStatus) -> ExperimentStatus:
        """The status of the run, from that of one of its policies."""
        if len(self._sides) == 1:
            return status
        counters = self.counters()
        return structs.replace(
            status,
            env_step=counters.env_step,
            train_iter=counters.train_iter,
            episode=counters.episode,
            policy_version=counters.policy_version,
            last_return=mean_return(last_returns([side.commander for side in self._sides])),
            best_return=None,
        )

    @property
    def _ending(self) -> End | None:
        return next((side.commander.ending for side in self._sides if side.commander.ending is not None), None)

    @property
    def _failed(self) -> End | None:
        ends = (side.commander.ending for side in self._sides)
        return next((end for end in ends if end is not None and end.state == "failed"), None)

    # --- learning, collecting, and looking around ---

    def _learn(self, batches: Sequence[int]) -> bool:
        """Learn from so many batches of each policy; whether there was any."""
        for side, count in zip(self._sides, batches, strict=True):
            if count:
                side.learn(count)
        return any(batches)

    def _collect(self) -> None:
        wanted = [side.wanted_env_steps() for side in self._sides]
        exact = [steps for side, steps in zip(self._sides, wanted, strict=True) if side.collects_whole_slots]
        with self._timers("collect"):
            chunks = self._collector.collect(
                exact[0] if exact else max(wanted), [side.behavior() for side in self._sides]
            )
        for side, collected in zip(self._sides, chunks, strict=True):
            side.insert(replace(collected, task=self._task.number))

    def _look_around(self) -> None:
        self._carry_out([side.tell_callbacks() for side in self._sides])
        self._carry_out([side.commander.progressed(side.counters()) for side in self._sides])
        self._end_together()
        if self._hooks.stop.ending:
            end = End(ON_REQUEST, f"interrupted: {self._hooks.stop.reason}")
            self._carry_out([side.commander.end(end, skip_final_evaluation=True) for side in self._sides])
        now_s = self._hooks.clock()
        for side in self._sides:
            side.report(now_s)
        self._timing.report(self.counters(), now_s)
        status = self._sides[0].news(now_s)
        if status is not None:
            self._hooks.on_progress(self.joined(status))
        self._begin_tasks()

    def _begin_tasks(self) -> None:
        """Go on to the task that is due. Raises EnvironmentBuildError."""
        commanders = [side.commander for side in self._sides]
        while any([side.begin_task(commanders) for side in self._sides]):
            pass  # the step may have been that of several
        self._follow_task()

    def _follow_task(self) -> None:
        """Collect and evaluate at the present task. Raises EnvironmentBuildError."""
        task = self._sides[0].commander.curriculum.task
        if task == self._task:
            return
        self._task = task
        self._environments.begin(task)
        for side in self._sides:
            side.components.evaluations.begin(task)

    def _end_together(self) -> None:
        """What ends one of several policies ends all of them; so do returns that have all reached stop.stop_value."""
        if len(self._sides) == 1:
            return
        end = self._ending or all_solved([side.commander for side in self._sides], self._stop_value)
        if end is not None:
            self._carry_out([side.commander.end(end) for side in self._sides])

    # --- what commanders decide ---

    def _carry_out(self, asked: Sequence[Sequence[Decision]]) -> None:
        """Carry out the decisions of each side, and those that follow from them. Raises OSError, JournalError, and what
        playing raises."""
        waiting = [list(decisions) for decisions in asked]
        while any(waiting):
            waiting = self._save_together(waiting)
            waiting = [
                [later for decision in decisions for later in self._carried_out(side, decision)]
                for side, decisions in zip(self._sides, waiting, strict=True)
            ]

    def _save_together(self, asked: Sequence[Sequence[Decision]]) -> list[list[Decision]]:
        """Do all that is to be saved: checkpoints of all policies that have learned, and one commit for all. Returns
        what is left to do."""
        saves = [[one for one in decisions if isinstance(one, Save)] for decisions in asked]
        left: list[list[Decision]] = [[one for one in decisions if not isinstance(one, Save)] for decisions in asked]
        if not any(saves):
            return left
        for side, own in zip(self._sides, saves, strict=True):
            if not own:
                own += [one for one in side.commander.save_now(side.counters()) if isinstance(one, Save)]
        with self._timers("save"):
            outcomes = [
                [side.dispatch.save(save) for save in own] for side, own in zip(self._sides, saves, strict=True)
            ]
            with together([side.components.journal for side in self._sides]):
                for side in self._sides:
                    side.dispatch.write_journal()
            for side, done, todo in zip(self._sides, outcomes, left, strict=True):
                side.dispatch.committed()
                for outcome in done:
                    side.dispatch.record(outcome.effects)
                    todo += outcome.decisions
        return left

    def _carried_out(self, side: PolicySide, decision: Decision) -> Sequence[Decision]:
        return [decision] if isinstance(decision, Save) else side.dispatch.carry_out(decision)
