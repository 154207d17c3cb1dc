"""The options of `remuda evaluate`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from remuda.cli.options import AsJson
from remuda.storage.run_folder import is_onnx

if TYPE_CHECKING:
    from remuda.config.schema import ExperimentConfig

RunDirArgument = Annotated[
    Path, typer.Argument(metavar="RUN_DIR", help="A run folder, its model/ folder, or an exported .onnx file.")
]
Episodes = Annotated[
    int | None,
    typer.Option(
        "-n", "--episodes", min=1, max=1_000_000, help="Number of episodes (default: 100; 1 with --follow or --record)."
    ),
]
Length = Annotated[
    int, typer.Option("-l", "--length", min=0, help="Longest episode in steps; 0: the environment's own limit.")
]
Which = Annotated[
    str | None,
    typer.Option("-i", "--iteration", help="Which policy: -1 newest (the default), best, a train_iter, or model."),
]
Deterministic = Annotated[bool, typer.Option("-d", "--deterministic", help="Act greedily, without exploration.")]
NoSearch = Annotated[
    bool,
    typer.Option("--no-search", help="Act by the network alone, where the algorithm searches (MuZero)."),
]
NoRender = Annotated[bool, typer.Option("-nr", "--no-render", help="Show nothing; this is faster.")]
Record = Annotated[
    Path | None, typer.Option(metavar="DIR", help="Film each episode as an MP4 in DIR; older films are overwritten.")
]
Follow = Annotated[bool, typer.Option("--follow", help="Play each newer policy of a running run, until it is over.")]
TrustCode = Annotated[
    bool,
    typer.Option(
        "--trust-code",
        help="Allow code from the folder: files of another user, a module in it, vars.pkl. Such code can do anything.",
    ),
]
EvaluationSeed = Annotated[
    int | None, typer.Option("--seed", min=0, help="Seed of the episodes (default: the run's seed).")
]
PolicyOption = Annotated[
    str | None,
    typer.Option(
        "--policy",
        metavar="NAME",
        help="With --against: which of several policies is judged; in a league: which plays.",
    ),
]
Against = Annotated[
    str | None,
    typer.Option(
        metavar="WHICH",
        help="Several agents: one is played by -i, all others by these checkpoints (as -i names them; in a league also "
        "POLICY, or POLICY/ITERATION).",
    ),
]


@dataclass(frozen=True, kw_only=True)
class EvaluateOptions:
    """Values of the options."""

    run_dir: RunDirArgument
    episodes: Episodes = None
    length: Length = 0
    iteration: Which = None
    deterministic: Deterministic = False
    no_search: NoSearch = False
    no_render: NoRender = False
    record: Record = None
    follow: Follow = False
    trust_code: TrustCode = False
    seed: EvaluationSeed = None
    policy: PolicyOption = None
    against: Against = None
    as_json: AsJson = False

    @property
    def folder(self) -> Path:
        """Folder of the run, or of the exported file."""
        return self.run_dir.parent if is_onnx(self.run_dir) else self.run_dir

    @property
    def which(self) -> str:
        """Checkpoint to play; the default is the newest."""
        return self.iteration or "-1"

    def playing(self, run: ExperimentConfig) -> list[str]:
        """Return the names of the policies of a run with several agents that play: all, or one of a league, which acts
        for all agents."""
        names, league = sorted(run.policies) or [""], run.self_play.league
        if league is None:
            return names
        return [self.policy or next(name for name in names if name not in league.exploiters)]

    @property
    def number(self) -> int:
        return self.episodes or (1 if self.follow or self.record is not None else 100)
