"""`remuda evaluate`: play a trained policy."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from remuda.cli.chosen_policy import EvaluateOptions, check, chosen, require_playable, several_agents
from remuda.cli.options import with_options
from remuda.cli.output import reserved_stdout

if TYPE_CHECKING:  # what plays imports torch, which --help does not need
    from remuda.config.schema import ExperimentConfig

EXAMPLE = "remuda evaluate runs/cartpole_dqn -i best -n 20 -d"


@with_options(EvaluateOptions)
def evaluate(options: EvaluateOptions) -> None:
    """Play a trained policy and print each episode and a summary.

    Without -d the policy explores as at the end of its schedule (DQN: a share policy.epsilon_end of the actions is
    random). The same seed plays the same episodes again. With a display the episodes are shown one after the other;
    with -nr several are played at once. Ctrl-C ends the command with a summary of the finished episodes.

    With --follow each newer policy plays -n episodes: in parallel mode the policies that the learner publishes, in
    serial mode the checkpoints. --json then prints one line of JSON for each policy.

    In an environment with several agents all policies of the run play together. With --against one agent of --policy
    plays against older checkpoints: -i says which checkpoint it is played by, --against those of all others. In a
    league one policy acts for all agents, --policy NAME or the first main policy; --against may name another policy.
    """
    check(options)
    several = several_agents(options.run_dir)
    from remuda.worker.process import bound_threads  # after the checks: it imports torch, which takes seconds

    bound_threads()
    _play(options, several)


def _play(options: EvaluateOptions, run: ExperimentConfig | None) -> None:
    """`run` are the settings of a run with several agents."""
    from remuda.cli.playing import EpisodeView

    require_playable(options, run)
    policies = None if options.follow else chosen(options, run)
    mode = "rgb_array" if options.record is not None else None
    if mode is None and not options.no_render and run is None and _can_render():
        mode = "human"
    with reserved_stdout(alone=options.as_json) as output, EpisodeView(options, output, run, mode=mode) as view:
        if policies is not None:
            view.play(policies)
        else:
            from remuda.cli.playing import follow_run

            follow_run(view, policies=() if run is None else options.playing(run))


def _can_render() -> bool:
    """Return True with a display; otherwise print a line."""
    if sys.platform in ("darwin", "win32") or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"):
        return True
    print(
        "no display: episodes are played and not shown (use -nr to avoid this message)",
        file=sys.stderr,
    )
    return False
