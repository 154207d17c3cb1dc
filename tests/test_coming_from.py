"""Compares docs/coming-from.md with Remuda: its names exist, its dashes are true, and no name of another system is
left out."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest
import typer
from typer.core import TyperGroup

import remuda
from remuda.cli.app import app
from remuda.config.algorithms.registry import BUILT_IN
from remuda.config.learning import BufferConfig
from remuda.config.schema import ExperimentConfig
from remuda.config.suggest import all_keys, kinds_at
from remuda.environments.episode_info import DISCOUNTED_RETURN
from remuda.logbook.episode_reports import CollectReport, EvaluationReport, WorkerReport
from remuda.logbook.progress import ProgressRow
from remuda.logbook.reports import BufferSampleReport, BufferThroughputReport, Report
from remuda.policy.algorithms import declaration
from remuda.tests.names_of_others import FIELD_WORDS, IN_WORDS, NAMES, OTHER_MEANINGS
from remuda.wire.messages import CheckpointRecord, ExperimentStatus

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "coming-from.md"
FILLERS = {"n", "num", "avg", "mean", "of", "the", "is", "max", "min", "use", "with", "set", "on"}
FILES_ARE_IN = ("docs/run-folder.md", "docs/plotting-and-sweeps.md", "storage/run_folder.py")


def cells(text: str) -> Iterator[tuple[int, str, str]]:
    """Line, heading and content of every cell of every table."""
    headings: list[str] | None = None
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.startswith("|"):
            headings = None
            continue
        row = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if headings is None:
            headings = row
        elif set(row[0]) != {"-"}:
            yield from ((number, heading, cell) for heading, cell in zip(headings, row, strict=True))


def rows(text: str) -> Iterator[tuple[int, str, str, str]]:
    """Line, their names, ours and the note of each row of the tables of one system."""
    line: dict[int, list[tuple[str, str]]] = {}
    for number, heading, cell in cells(text):
        line.setdefault(number, []).append((heading, cell))
    for number, found in line.items():
        if [heading for heading, _ in found] == ["theirs", "Remuda", ""]:
            (_, theirs), (_, ours), (_, remark) = found
            yield number, theirs, ours, remark


def their_cells(text: str, system: str) -> str:
    """What stands in the columns of others: of the tables of one system, and of that of all."""
    sections = re.split(r"^## ", text, flags=re.M)[1:]
    chosen = [section for section in sections if section.startswith((f"{system}\n", "The same words\n"))]
    assert len(chosen) == 2, system
    found = (one for section in chosen for one in cells(section))
    return "\n".join(cell for _, heading, cell in found if heading not in ("Remuda", ""))


def spans() -> list[tuple[int, str]]:
    """Line and text of everything set as code in those cells."""
    ours = [(number, cell) for number, heading, cell in cells(PAGE.read_text(encoding="utf-8")) if heading == "Remuda"]
    return [(number, span) for number, cell in ours for span in re.findall(r"`([^`]+)`", cell)]


@cache
def verbs() -> dict[str, set[str]]:
    """Every verb, `config show` too, with its options."""
    root = typer.main.get_command(app)
    assert isinstance(root, TyperGroup)
    found: dict[str, set[str]] = {}
    pending = [("", root)]
    while pending:
        name, group = pending.pop()
        for word, command in group.commands.items():
            if isinstance(command, TyperGroup):
                pending.append((f"{name}{word} ", command))
            else:
                found[f"{name}{word}"] = {option for parameter in command.params for option in parameter.opts}
    return found


@cache
def settings() -> set[str]:
    keys = {key for kind in kinds_at(("policy",)) for key in all_keys(kind)}
    return keys | {key.partition(".")[0] for key in keys}


@cache
def names() -> set[str]:
    """Columns, keys of logs and curves, and fields of a status."""
    info: dict[str, list[float]] = {DISCOUNTED_RETURN: []}
    row = ProgressRow(epoch=0, env_step=0, losses={}, wall_s=0.0, info=info, test_info=info)
    known = {*row.values(), *row.record(), *ExperimentStatus.__struct_fields__, "nan"}
    known |= {*CheckpointRecord.__struct_fields__}
    policies: list[dict[str, object]] = [{"type": kind} for kind in BUILT_IN]
    for policy in (*policies, {"type": "muzero", "gumbel": True}):
        config = ExperimentConfig.model_validate({"name": "x", "env": {"id": "x"}, "policy": policy})
        declared = declaration(config)
        known |= {*declared.loss_columns, *declared.told, *declared.exploration, *declared.collected}
        known |= {f"learner/{name}" for name in declared.told}
        known |= {f"learner_step/{name}_avg" for name in declared.monitored}
    for role, report in (
        ("collector", CollectReport), ("evaluator", EvaluationReport), ("buffer", BufferSampleReport),
        ("collector", WorkerReport), ("buffer", BufferThroughputReport),
    ):  # fmt: skip
        fields = re.findall(r'^            "([\w/]+)":', source_of(report), re.M)
        assert fields
        known |= {*fields, *(f"{role}_step/{field}" for field in fields)}
    return known


def source_of(report: type[Report]) -> str:
    return inspect.getsource(report)


def is_known(span: str) -> bool:
    if span.startswith("remuda."):
        module, _, name = span.rpartition(".")
        return hasattr(import_module(module), name)
    if span.startswith("remuda "):
        words = span.split()[1:]
        verb = " ".join(word for word in words if not word.startswith("-"))
        return verb in verbs() and {word for word in words if word.startswith("-")} <= verbs()[verb]
    if span.startswith("-"):
        return any(span in options for options in verbs().values())
    return span in settings() or span in names() or is_documented_file(span)


@cache
def ours() -> dict[str, frozenset[str]]:
    """The words of each setting, verb, option, name to import, log key and entry of a run folder."""
    folder = (ROOT / "docs" / "run-folder.md").read_text(encoding="utf-8")
    found = {*settings(), *names(), *(f"remuda {verb}" for verb in verbs()), *remuda.__all__}
    found |= {option for options in verbs().values() for option in options}
    found |= {span for span in re.findall(r"`([^`\n]+)`", folder) if " " not in span}
    return {name: frozenset(words(name)) for name in found}


def words(name: str) -> list[str]:
    return [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)]


def relatives(theirs: str) -> set[str]:
    """Our names that have every word of a name in `theirs`."""
    compound = [words(re.split(r"[./]", name)[-1]) for name in re.findall(r"[\w./-]*\w", theirs)]
    wanted = [[word for word in name if word not in FILLERS] for name in compound if len(name) > 1]
    return {
        name for name, mine in ours().items() if any(one and all(has(mine, word) for word in one) for one in wanted)
    }


def has(mine: frozenset[str], word: str) -> bool:
    return bool(mine & {word, word.removesuffix("s"), f"{word}s", *FIELD_WORDS.get(word, "").split()})


def is_documented_file(span: str) -> bool:
    if not ("/" in span or "." in span or "_logger" in span):
        return False
    if span.startswith(("runs/<", "<run")):
        return True
    text = "\n".join((ROOT / page).read_text(encoding="utf-8") for page in FILES_ARE_IN)
    name = re.escape(span.rstrip("/").rpartition("/")[2])
    return re.search(rf"(?<![\w.]){name}(?![\w.])", text) is not None


@pytest.mark.parametrize(("line", "span"), spans(), ids=str)
def test_what_is_called_ours_is_there(line: int, span: str) -> None:
    assert is_known(span), f"{PAGE.name}:{line}: {span}"


def test_the_page_is_read_at_all() -> None:
    assert len(spans()) > 250


@pytest.mark.parametrize(
    "span",
    [
        "remuda fly",
        "remuda train --fly",
        "remuda.policy.load_nothing",
        "--fly",
        "buffer.capacities",
        "ckpt/best.pth",
        "reward_average",
        "wings",
    ],
)
def test_what_is_not_there_is_noticed(span: str) -> None:
    assert not is_known(span)


def test_settings_are_those_of_every_algorithm() -> None:
    assert {"policy.n_step", "policy.clip", "policy.rho_clip"} <= settings()
    assert {f"buffer.{name}" for name in BufferConfig.model_fields} <= settings()


@pytest.mark.parametrize("system", NAMES)
def test_none_of_their_names_is_left_out(system: str) -> None:
    text = their_cells(PAGE.read_text(encoding="utf-8"), system)
    names = [*NAMES[system].split(), *IN_WORDS.get(system, ())]
    assert len(names) > 70
    assert [name for name in names if name not in text] == []


def test_each_dash_has_a_reason_and_is_still_true() -> None:
    """A feature that is added fails this test where a dash denies its words, until somebody looks at the row."""
    problems: list[str] = []
    for line, theirs, mine, note in rows(PAGE.read_text(encoding="utf-8")):
        if mine != "–":
            continue
        first = theirs.replace("`", "").split(",")[0]
        if not note:
            problems.append(f"{line}: {first}: say why there is none")
        known = OTHER_MEANINGS.get(first)
        if new := [name for name in sorted(relatives(theirs)) if known is None or known not in name]:
            problems.append(f"{line}: {first}: is this here by now? {', '.join(new)}")
    assert not problems, "\n".join(problems)


@pytest.mark.parametrize(
    ("theirs", "name"),
    [
        ("env.manager.max_retry, retry_type, step_timeout", "env.step_timeout_s"),
        ("env.manager.max_retry", "env.restarts_per_hour"),
        ("policy.learn.learner_num", "learner.ranks"),
        ("init_entcoef", "policy.initial_temperature"),
    ],
)
def test_a_dash_for_what_exists_is_noticed(theirs: str, name: str) -> None:
    assert name in relatives(theirs)
