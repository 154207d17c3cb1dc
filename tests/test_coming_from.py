"""Compares docs/coming-from.md with Remuda: its names exist, and each dash has a reason."""

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

from remuda.cli.app import app
from remuda.config.algorithms.registry import BUILT_IN
from remuda.config.explain import all_keys, kinds_at
from remuda.config.learning import BufferConfig
from remuda.config.schema import ExperimentConfig
from remuda.environments.lanes import DISCOUNTED_RETURN
from remuda.logbook.episode_reports import CollectReport, EvaluationReport, WorkerReport
from remuda.logbook.progress import ProgressRow
from remuda.logbook.reports import BufferSampleReport, BufferThroughputReport, Report
from remuda.policy.algorithms import declaration
from remuda.wire.messages import CheckpointRecord, ExperimentStatus

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "coming-from.md"
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
    assert len(spans()) > 150


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


def test_each_dash_has_a_reason() -> None:
    table: dict[int, list[str]] = {}
    for line, _, cell in cells(PAGE.read_text(encoding="utf-8")):
        table.setdefault(line, []).append(cell)
    assert [line for line, row in table.items() if row[1] == "–" and not row[2]] == []
