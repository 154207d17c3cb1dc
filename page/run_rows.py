"""Rows of runs: facts of folder and coordinator, and a sentence about the state."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import asdict, replace

from remuda.page.growing import finite
from remuda.page.herd import MissingWorkers, QueueEntry, words
from remuda.page.run_ids import RunIds, of_policy
from remuda.page.stored_runs import PolicyRow, RunRow, StoredRun, Tone
from remuda.training.commander.together import mean_return
from remuda.wire.messages import OVER, ExperimentStatus, PolicyStatus, Status

NOTABLE = 0.25
"""Least share of time of a wait that is mentioned."""
_NEVER = 0.02
"""Least share of a wait for disks or workers that is mentioned; these waits should not occur."""
Shares = Mapping[str, Mapping[str, float]]
"""Share of time of each kind, by role."""
_SAME = (
    *("name", "state", "reason", "priority", "env_step", "train_iter", "episode", "policy_version", "wall_s"),
    *("env_steps_per_s", "train_iters_per_s", "policy_lag"),
)
"""Fields with the same name in ExperimentStatus and RunRow."""
_TONES: Mapping[str, Tone] = {
    "queued": "wait",
    "starting": "wait",
    "running": "good",
    "stopping": "wait",
    "failed": "bad",
}


class Headline(Struct, frozen=True):
    """Sentence about a run, and its tone."""

    tone: Tone
    text: str


def headline(
    run: RunRow,
    *,
    queued: QueueEntry | None = None,
    recent: Shares | None = None,
    stop: Mapping[str, object] | None = None,
) -> Headline:
    """Describe the state of a run, by its entry in the queue, current shares of time, and bounds in the config."""
    tone = _TONES.get(run.state, "still")
    if run.state == "queued":
        return Headline(tone, _sentence(_queued(queued, run.why)))
    if run.state == "running":
        return Headline("wait", _sentence(run.why)) if run.why else _running(recent or {})
    begins_or_ends = {
        "starting": "it has its workers, and waits until its learner is ready",
        "stopping": "it ends: the last checkpoint is saved and evaluated",
    }
    if run.state in begins_or_ends:
        return Headline(tone, _sentence(run.why or begins_or_ends[run.state]))
    if run.state == "unknown":
        text = "nobody has written how it ended: its process was killed, or another coordinator has it"
        return Headline(tone, _sentence(text))
    return Headline(tone, _sentence(f"{run.state}: {_end(run.reason, stop or {})}"))


def _queued(queued: QueueEntry | None, why: str | None) -> str:
    """Return for instance `waits for 1 learner and 1 collector: low has them; it is number 1 in the queue`."""
    if queued is None:
        return why or "it waits for workers"
    place = "" if queued.place is None else f"; it is number {queued.place} in the queue"
    if not queued.waits_for:
        return f"{queued.why or why or 'it waits for workers'}{place}"
    runs = list(dict.fromkeys(holder.run or holder.name for holder in queued.held_by))
    shown = runs if len(runs) <= 3 else [*runs[:2], f"{len(runs) - 2} other runs"]
    one = len(queued.waits_for) == 1 and queued.waits_for[0].missing == 1
    have = f"{_listed(shown)} {'has' if len(runs) == 1 else 'have'} {'it' if one else 'them'}"
    lacks = _listed([_lack(each) for each in queued.waits_for])
    return f"waits for {lacks}: {have if runs else 'the herd has too few'}{place}"


def _lack(lack: MissingWorkers) -> str:
    """`2 collectors (1 free)`."""
    many = lack.missing or lack.needs
    more = ", ".join(filter(None, [f"{lack.free} free" if lack.free else "", lack.note]))
    return f"{many:,} {lack.role}{'' if many == 1 else 's'}{f' ({more})' if more else ''}"


def _running(recent: Shares) -> Headline:
    """Describe a running run by its most costly wait."""

    def waits(role: str, kinds: Sequence[str], least: float) -> Headline | None:
        shares = recent.get(role, {})
        most = max(kinds, key=lambda kind: shares.get(kind, 0.0))
        if shares.get(most, 0.0) < least:
            return None
        name, why = words(role)[most]
        return Headline("wait", _sentence(f"the {role} {name} {_percent(shares[most])} of its time: {why}"))

    for role in ("learner", "collector"):
        if (stuck := waits(role, ["wait_disk", "wait_workers"], _NEVER)) is not None:
            return stuck
    credit = recent.get("collector", {}).get("wait_credit", 0.0)
    batches = recent.get("learner", {}).get("wait_batches", 0.0)
    if min(credit, batches) >= NOTABLE:
        text = (
            f"the learner and its collectors wait for each other, it for batches {_percent(batches)} of its time, they "
            f"for credit {_percent(credit)}: a larger buffer.max_policy_lag would let both work at once"
        )
        return Headline("wait", _sentence(text))
    if (starved := waits("learner", ["wait_batches", "wait_policy", "wait_other"], NOTABLE)) is not None:
        return starved
    if credit >= NOTABLE:
        text = f"the learner sets the pace: its collectors wait for credit {_percent(credit)} of their time"
        return Headline("good", _sentence(text))
    return Headline("good", _sentence("it runs, and nobody waits for long" if recent else "it runs"))


def _end(reason: str | None, stop: Mapping[str, object]) -> str:
    if reason is None:
        return "nobody has written why"
    ends: Mapping[str, Callable[[], str]] = {
        "stop_value": lambda: f"its return reached the stop value {_bound(stop, 'stop_value', '')}".rstrip(),
        "max_env_steps": lambda: f"it has made {_bound(stop, 'max_env_steps', 'all its')} environment steps",
        "max_train_iters": lambda: f"it has made {_bound(stop, 'max_train_iters', 'all its')} updates",
        "max_wall_s": lambda: "its time was over",
        "stopped": lambda: "somebody asked for it",
    }
    return ends[reason]() if reason in ends else reason


def _bound(stop: Mapping[str, object], name: str, otherwise: str) -> str:
    value = stop.get(name)
    return f"{value:,.10g}" if isinstance(value, int | float) else otherwise


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _listed(words_: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(words_[:-1]), *words_[-1:]]))


def _sentence(text: str) -> str:
    text = text.strip().rstrip(". \n")
    return f"{text[:1].upper()}{text[1:]}."


def run_rows(stored: Iterable[StoredRun], status: Status | None, ids: RunIds) -> list[RunRow]:
    """Return rows for all runs: unfinished runs first, then the order of `stored`. Facts of the coordinator replace
    facts of the folder; of several experiments in a folder the newest counts."""
    known = {} if status is None else _by_run(status.experiments, ids)
    folders = [RunRow(**{name: getattr(each, name) for name in RunRow.__struct_fields__}) for each in stored]
    here = {row.run for row in folders}
    rows = [row if row.run not in known else live_row(row, known[row.run]) for row in folders]
    new = [live_row(None, each, run) for run, each in known.items() if run not in here]
    if status is not None:
        new += [live_row(None, each) for each in status.experiments if ids.id_of(each.run_dir) is None]
    return sorted([*new, *rows], key=lambda row: row.state in (*OVER, "unknown"))


def with_headline(row: RunRow, queued: QueueEntry | None, recent: Shares, stop: Mapping[str, object]) -> RunRow:
    """Return the row with its sentence."""
    said: Headline = headline(row, queued=queued, recent=recent, stop=stop)
    return replace(row, tone=said.tone, says=f"{said.text} {row.damage}".rstrip())


def run_ids(status: Status, ids: RunIds) -> dict[str, str]:
    """Return the run ids by experiment id, for runs below the runs folder."""
    return {each.id: run for each in status.experiments if (run := ids.id_of(each.run_dir)) is not None}


def live_row(row: RunRow | None, status: ExperimentStatus, run: str | None = None) -> RunRow:
    """Return the row with the facts of the coordinator; `row` comes from the folder, if present."""
    base = RunRow(run=run, name=status.name, group=status.name) if row is None else row
    policies = [_live_policy(base.run, each) for each in status.policies]
    found = replace(base, **_of(status), policies=policies, live=status.state not in OVER)
    return replace(found, best_return=mean_return([each.best_return for each in policies])) if policies else found


def _live_policy(run: str | None, status: PolicyStatus) -> PolicyRow:
    """Return the row of one of several policies of a run, whose id is `run`."""
    shown = {name: value for name, value in asdict(status).items() if name in PolicyRow.__struct_fields__}
    return replace(PolicyRow(**shown, run=run and of_policy(run, status.name)), **_finite(status))


def _of(status: ExperimentStatus) -> dict[str, object]:
    same = {name: getattr(status, name) for name in _SAME}
    return {**same, "experiment": status.id, "why": status.waiting_for, **_finite(status)}


def _finite(status: ExperimentStatus | PolicyStatus) -> dict[str, float | None]:
    """Return the numbers that may be missing or infinite."""
    return {
        "last_return": finite(status.last_return),
        "best_return": finite(status.best_return),
        "samples_per_insert": finite(status.samples_per_insert),
    }


def _by_run(experiments: Iterable[ExperimentStatus], ids: RunIds) -> dict[str | None, ExperimentStatus]:
    """Return the newest experiment of each folder, preferring unfinished experiments."""
    found: dict[str | None, ExperimentStatus] = {}
    for each in experiments:
        run = ids.id_of(each.run_dir)
        before = found.get(run)
        if run is not None and (before is None or before.state in OVER):
            found[run] = each
    return found
