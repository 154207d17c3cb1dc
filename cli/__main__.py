"""Entry point of `remuda` and `python -m remuda.cli`, and its exit codes."""

from __future__ import annotations

import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from remuda.deploy.nanny_process import NannyProcess

INTERRUPTED = 130
CLOSED_PIPE = 141
"""Nobody reads the output any more, as in `remuda logs RUN | head`: the exit code of programs that SIGPIPE ends."""


def run() -> NoReturn:
    """Run the command line of this process, and end the process; an unexpected exception ends it with a traceback."""
    end = SystemExit()
    try:
        main(starts_early=True)
    except SystemExit as raised:
        end = raised
    from remuda.worker.process import exit_code, exit_now

    exit_now(exit_code(end))


def main(*, starts_early: bool = False) -> None:
    """Run the command line; ends with SystemExit, or with an unexpected exception.

    `starts_early`: a process that this command will need is started before the command line is read."""
    try:
        _run_command(starts_early=starts_early)
    except BrokenPipeError:
        sys.exit(CLOSED_PIPE)
    except SystemExit as end:
        # typer and rich make such an end of the error
        if isinstance(end.__context__, BrokenPipeError) or (not end.code and not _is_read()):
            sys.exit(CLOSED_PIPE)
        raise


def _is_read() -> bool:
    """Flush standard output; return False if its pipe is closed. `exit_now` notices all other errors."""
    with suppress(OSError, ValueError, AttributeError):
        try:
            sys.stdout.flush()
        except BrokenPipeError:
            return False
    return True


def _run_command(*, starts_early: bool) -> None:
    try:
        from remuda.cli.errors import InputError

        if said := foreign_option_error(sys.argv[1:]):
            raise InputError(said)

        with prestarted_nanny(sys.argv[1:]) if starts_early else nullcontext() as nanny:
            from remuda.cli.app import app  # takes a while, and Ctrl-C may come meanwhile

            app(prog_name="remuda", obj=nanny)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except Exception as error:
        from remuda.cli.errors import exit_code, text_of

        code = exit_code(error)
        if code is None:
            raise
        from remuda.logbook.lines import unforgeable

        print(unforgeable(text_of(error)), file=sys.stderr)
        sys.exit(code)


_STARTS_NOTHING = {"-h", "--help", "--dry-run"}


@contextmanager
def prestarted_nanny(arguments: Sequence[str]) -> Generator[NannyProcess | None]:
    """Yield a nanny that imports the modules of workers, if the arguments begin with `launch`, and end the nanny after
    the body.

    The arguments are not checked yet: a launch that is refused, or runs on other machines, ends the nanny earlier.
    """
    if arguments[:1] != ["launch"] or _STARTS_NOTHING & set(arguments):
        yield None
        return
    from remuda.deploy.nanny_process import NannyProcess

    with NannyProcess() as nanny:
        yield nanny


@dataclass(frozen=True)
class _Replacement:
    """The replacement of an option."""

    instead: str
    verbs: tuple[str, ...] = ()
    """Commands of Remuda with an option of this name."""


_SAVED = _Replacement("--set checkpoint.interval_env_steps=N (and checkpoint.keep: how many are kept)")
_REPLACEMENTS = {
    "--len": _Replacement("`remuda evaluate -l` (--length)"),
    "--norender": _Replacement("`remuda evaluate -nr` (--no-render)"),
    "--itr": _Replacement("`remuda evaluate -i` (--iteration)"),
    "--episodes": _Replacement("`remuda evaluate -n`; in training --set evaluator.episodes=N", ("evaluate",)),
    "--deterministic": _Replacement("`remuda evaluate -d`; in training evaluator.deterministic", ("evaluate",)),
    "--save-freq": _SAVED,
    "--save_freq": _SAVED,
    "--epochs": _Replacement("--set stop.max_env_steps=N"),
    "--steps_per_epoch": _Replacement("--set log.progress_interval_env_steps=N"),
    "--exp_name": _Replacement("--set name=NAME, or --run-id for the folder alone"),
    "--data_dir": _Replacement("--runs-dir"),
    "--num_runs": _Replacement("`remuda sweep` with several seeds"),
}


def foreign_option_error(arguments: Sequence[str]) -> str | None:
    """Return the error for the first option of another program among the arguments of `remuda`, or None."""
    verb = next((argument for argument in arguments if not argument.startswith("-")), "")
    for argument in arguments:
        if argument == "--":
            return None
        option = argument.partition("=")[0]
        former = _REPLACEMENTS.get(option)
        if former is not None and verb not in former.verbs:
            return f"unknown option {option}; in Remuda: {former.instead}"
    return None


if __name__ == "__main__":
    run()
