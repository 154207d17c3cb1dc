"""`remuda evaluate`: play a trained policy."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from remuda.cli.chosen_policy import check, chosen, several_agents
from remuda.cli.evaluate_options import (
    Against,
    Deterministic,
    Episodes,
    EvaluateOptions,
    EvaluationSeed,
    Follow,
    Length,
    NoRender,
    NoSearch,
    PolicyOption,
    Record,
    RunDirArgument,
    TrustCode,
    Which,
)
from remuda.cli.options import AsJson
from remuda.cli.output import reserved_stdout

if TYPE_CHECKING:  # what plays imports torch, which --help does not need
    from remuda.config.schema import ExperimentConfig

EXAMPLE = "remuda evaluate runs/cartpole_dqn -i best -n 20 -d"


def evaluate(
    run_dir: RunDirArgument,
    episodes: Episodes = None,
    length: Length = 0,
    iteration: Which = None,
    deterministic: Deterministic = False,
    no_search: NoSearch = False,
    no_render: NoRender = False,
    record: Record = None,
    follow: Follow = False,
    trust_code: TrustCode = False,
    seed: EvaluationSeed = None,
    policy: PolicyOption = None,
    against: Against = None,
    as_json: AsJson = False,
) -> None:
    """Play a trained policy and print each episode and a summary.

    Without -d the policy explores as at the end of its schedule (DQN: a share policy.epsilon_end of the actions is
    random). The same seed plays the same episodes again. With a display the episodes are shown one after the other;
    with -nr several are played at once. Ctrl-C ends the command with a summary of the finished episodes.

    With --follow each newer policy plays -n episodes: in parallel mode the policies that the learner publishes, in
    serial mode the checkpoints. --json then prints one line of JSON for each policy.

    In an environment with several agents all policies of the run play together. With --against one agent of --policy
    plays against older checkpoints: -i says which checkpoint it is played by, --against those of all others.
    """
    options = EvaluateOptions(
        run_dir=run_dir,
        episodes=episodes,
        length=length,
        iteration=iteration,
        deterministic=deterministic,
        no_search=no_search,
        no_render=no_render,
        record=record,
        follow=follow,
        trust_code=trust_code,
        seed=seed,
        policy=policy,
        against=against,
        as_json=as_json,
    )
    check(options)
    several = several_agents(run_dir)
    from remuda.worker.process import bound_threads  # after the checks: it imports torch, which takes seconds

    bound_threads()
    _play(options, several)


def _play(options: EvaluateOptions, run: ExperimentConfig | None) -> None:
    """`run` are the settings of a run with several agents."""
    from remuda.cli.chosen_policy import require_playable
    from remuda.cli.playing import EpisodeView, PlayOptions

    require_playable(options, run)
    policies = None if options.follow else chosen(options, run)
    mode = "rgb_array" if options.record is not None else None
    if mode is None and not options.no_render and run is None and _can_render():
        mode = "human"
    play_options = PlayOptions(
        run_dir=options.folder,
        episodes=options.episodes or (1 if options.follow or options.record is not None else 100),
        length=options.length,
        deterministic=options.deterministic,
        render_mode=mode,
        record=options.record,
        trust_code=options.trust_code,
        seed=options.seed,
        as_json=options.as_json,
        follows=options.follow,
        against=options.against,
    )
    with reserved_stdout(alone=options.as_json) as output, EpisodeView(play_options, output, run) as view:
        if policies is not None:
            view.play(policies)
        else:
            from remuda.cli.following import follow_run

            names = () if run is None else tuple(sorted(run.policies))
            follow_run(
                options.run_dir, view, policies=names, trust_code=options.trust_code, search=not options.no_search
            )


def _can_render() -> bool:
    """Whether there is a display; if not, prints a line."""
    if sys.platform in ("darwin", "win32") or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"):
        return True
    print(
        "no display: episodes are played and not shown (use -nr to avoid this message)",
        file=sys.stderr,
    )
    return False
