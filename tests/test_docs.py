"""The pages of `make site`: their menu, and what they say about names, settings, files and layers."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.core import TyperGroup

from remuda import learning
from remuda.cli.app import app
from remuda.config.algorithms.registry import BUILT_IN
from remuda.config.explain import all_keys, kinds_at
from remuda.docs import metrics_page
from remuda.environments.lanes import DISCOUNTED_RETURN
from remuda.logbook.episode_reports import CollectReport, EvaluationReport, WorkerReport
from remuda.logbook.progress import ProgressRow
from remuda.logbook.reports import BufferSampleReport, BufferThroughputReport
from remuda.policy.base import Algorithm
from remuda.tests.test_house import LAYERS
from remuda.wire.messages import CheckpointRecord, ExperimentStatus

ROOT = Path(__file__).parents[1]
COMING_FROM = ROOT / "docs" / "coming-from.md"
FILES_ARE_IN = ("docs/run-folder.md", "docs/plotting-and-sweeps.md", "storage/run_folder.py")
PAGES = sorted((ROOT / "docs").rglob("*.md"))


def test_every_page_is_in_the_menu() -> None:
    menu = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")[2]
    listed = re.findall(r": ([\w/-]+\.md)$", menu, re.M)
    written = {page.relative_to(ROOT / "docs").as_posix() for page in PAGES}
    assert sorted(listed) == sorted(written | {"protocol.md"}), "`make site` writes protocol.md"


def test_every_name_of_the_reference_is_there() -> None:
    """A module, or a name in one."""
    texts = {page: page.read_text(encoding="utf-8") for page in PAGES}
    named = [(page.name, name) for page, text in texts.items() for name in re.findall(r"^::: ([\w.]+)$", text, re.M)]
    assert [(page, name) for page, name in named if not is_there(name)] == []
    assert not is_there("remuda.trian")


def test_the_picture_of_the_layers_is_that_of_the_house_rule() -> None:
    """Every package stands in its layer of docs/architecture.md, and no layer is missing."""
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    picture = text.partition("\n## Folders and layers\n")[2].split("```")[1]
    packages = set[str]().union(*LAYERS)
    drawn = [packages.intersection(re.findall(r"(?:^ |  )(\w+)", row, re.M)) for row in re.split(r"─+", picture)]
    assert drawn == list(reversed(LAYERS))


def is_there(name: str) -> bool:
    module, _, last = name.rpartition(".")
    try:
        import_module(name)
    except ModuleNotFoundError:
        return hasattr(import_module(module), last)
    return True


def _class(package: str, name: str) -> Any:
    module, _, last = f"{package}.{name}".rpartition(".")
    return getattr(import_module(module), last)


@pytest.mark.parametrize("algorithm", BUILT_IN)
def test_the_page_of_variants_names_the_classes_of_an_algorithm(algorithm: str) -> None:
    page = (ROOT / "docs" / "algorithms.md").read_text(encoding="utf-8")
    [(settings, entry, learners)] = re.findall(rf"^\| {algorithm} \| `(\S+)` \| `(\S+)` \| (.+) \|$", page, re.M)
    assert _class("remuda.config.algorithms", settings) is _class("remuda.policy.algorithms", entry).settings
    for learner in re.findall(r"`(\S+)`", learners):
        assert issubclass(_class("remuda.policy.algorithms", learner), Algorithm)


ALGORITHMS = (ROOT / "docs" / "built-in-algorithms.md").read_text(encoding="utf-8")
TABLE = dict(re.findall(r"^\| \[`(\w+)`\]\(#([\w-]+)\) \|", ALGORITHMS, re.M))
SECTIONS = {text.partition("\n")[0].lower().replace(" ", "-"): text for text in ALGORITHMS.split("\n## ")[1:]}


@pytest.mark.parametrize("algorithm", BUILT_IN)
def test_a_section_names_only_settings_of_its_algorithm(algorithm: str) -> None:
    """Settings are code with a dot. docs/configuration.md has all of them."""
    section, shared, known = SECTIONS[TABLE[algorithm]], SECTIONS["what-all-have"], set(all_keys(algorithm))
    named = re.findall(r"`((?:policy|buffer|learner|env|collector)\.\w+)", section)
    assert len(named) > 3
    assert set(named) | set(re.findall(r"`((?:policy|learner)\.\w+)", shared)) <= known | {"policy.network"}


def test_the_files_that_it_names_are_there() -> None:
    links = re.findall(r"\]\(\.\./([\w/.]+)\)", ALGORITHMS)
    assert len(links) > 15
    for link in links:
        assert (ROOT / link).is_file(), link


def test_every_example_is_on_the_page_of_examples() -> None:
    page = (ROOT / "docs" / "examples.md").read_text(encoding="utf-8")
    for example in (ROOT / "examples").glob("*.yaml"):
        assert f"](../examples/{example.name})" in page, "make docs"


def test_the_page_of_metrics_is_that_of_the_declarations() -> None:
    page = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    assert page == metrics_page.markdown_text(), "make docs"
    for kind in BUILT_IN:
        for declared in metrics_page.declared(kind):
            for name in (*declared.monitored, *declared.collected, *declared.exploration):
                assert f"\n| `{name}` |" in page, f"{kind}: its entry says no meaning of {name}"


@cache
def anchors(page: Path) -> set[str]:
    """The headings of a page as links name them, and its explicit anchors."""
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    headings = re.findall(r"^#+ (.*)$", text, re.M)
    slugs = {re.sub(r"[^\w -]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}
    return slugs | set(re.findall(r'<a id="([\w.-]+)">', text))


def test_every_link_to_a_heading_finds_it() -> None:
    for page in PAGES:
        for target, anchor in re.findall(r"\]\(([\w./-]*)#([\w.-]+)\)", page.read_text(encoding="utf-8")):
            file = (page.parent / target).resolve() if target else page
            if file.suffix == ".md" and file.parent.name != "api":  # mkdocs writes the headings of api/
                assert anchor in anchors(file), f"{page.name}: {target}#{anchor}"


def test_the_examples_of_pieces_run_as_they_stand() -> None:
    page = (ROOT / "docs" / "learning.md").read_text(encoding="utf-8")
    namespace: dict[str, object] = {}
    for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL):
        exec(block, namespace)
    assert set(learning.__all__) <= set(re.findall(r"\w+", page)), "every piece is on the page"


def test_what_a_page_shows_of_an_example_stands_there() -> None:
    """To the indent: a block with another one is another config."""
    shown = re.compile(r"`(examples/[\w/]+\.yaml)`:\n\n```yaml\n(.*?)```", re.DOTALL)
    found = [block for page in PAGES for block in shown.findall(page.read_text(encoding="utf-8"))]
    assert len(found) >= 3
    for file, block in found:
        there = [line.partition("#")[0].rstrip() for line in (ROOT / file).read_text(encoding="utf-8").splitlines()]
        for line in block.splitlines():
            assert line.partition("#")[0].rstrip() in there, f"{file}: {line}"


def commands(page: Path) -> list[str]:
    """Returns what follows `remuda` in the console blocks and the code spans of a page."""
    text = page.read_text(encoding="utf-8")
    blocks = re.findall(r"^```(\w*)\n(.*?)^```", text, re.M | re.DOTALL)
    console = "\n".join(block for language, block in blocks if language in ("", "console")).replace("\\\n", "")
    prose = re.sub(r"^```.*?^```", "", text, flags=re.M | re.DOTALL)
    return re.findall(r"^(?:\w*\$ +)?remuda (\w.*)$", console, re.M) + re.findall(r"`remuda (\w[^`]*)`", prose)


def test_every_command_and_option_that_a_page_shows_exists() -> None:
    shown = [(page.name, command) for page in (ROOT / "README.md", *PAGES) for command in commands(page)]
    assert len(shown) > 150
    for page, command in shown:
        words = command.partition(" #")[0].partition(" | ")[0].split()
        verb = next((verb for verb in (" ".join(words[:2]), words[0]) if verb in verbs()), None)
        assert verb, f"{page}: remuda {command}"
        options = {word.partition("=")[0] for word in words if re.match(r"--?[a-z]", word)}
        assert options <= verbs()[verb], f"{page}: remuda {command}"


ENTRY_POINTS = {"remuda.algorithms", "remuda.launchers", "remuda.sinks"}
"""Groups of entry points, and no modules."""


def test_every_name_of_the_package_that_a_page_shows_exists() -> None:
    text = "\n".join(page.read_text(encoding="utf-8") for page in PAGES if page.parent.name != "api")
    named = set(re.findall(r"(?<![\w./#])remuda(?:\.[A-Za-z_]\w*)+(?![\w=]|\.md)", text)) - ENTRY_POINTS
    assert len(named) > 60
    assert [name for name in sorted(named) if not is_there(name)] == []


@pytest.mark.parametrize(("page", "at_least"), [("promises.md", 100), ("deletions.md", 90)])
def test_every_test_that_keeps_a_promise_exists(page: str, at_least: int) -> None:
    """A file, `file::test` or `file::Class`; a folder stands for all its tests."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    named = re.findall(r"`(tests/[\w/]+(?:\.py)?)(?:::(\w+))?`", text)
    assert len(named) > at_least
    for path, test in named:
        assert (ROOT / path).exists(), path
        source = "" if not test else (ROOT / path).read_text(encoding="utf-8")
        assert not test or f"def {test}(" in source or f"class {test}:" in source, f"{path}::{test}"


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
    ours = [
        (number, cell)
        for number, heading, cell in cells(COMING_FROM.read_text(encoding="utf-8"))
        if heading == "Remuda"
    ]
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
    for declared in (one for kind in BUILT_IN for one in metrics_page.declared(kind)):
        known |= {*declared.loss_columns, *declared.told, *declared.exploration, *declared.collected}
        known |= {f"learner/{name}" for name in declared.told}
        known |= {f"learner_step/{name}_avg" for name in declared.monitored}
    for role, report in (
        ("collector", CollectReport), ("evaluator", EvaluationReport), ("buffer", BufferSampleReport),
        ("collector", WorkerReport), ("buffer", BufferThroughputReport),
    ):  # fmt: skip
        fields = re.findall(r'^            "([\w/]+)":', inspect.getsource(report), re.M)
        fields += [field.name for field in dataclasses.fields(report)]
        known |= {*fields, *(f"{role}_step/{field}" for field in fields)}
    return known


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


def test_what_is_called_ours_is_there_and_each_dash_has_a_reason() -> None:
    assert len(spans()) > 100
    assert [(line, span) for line, span in spans() if not is_known(span)] == []
    wrong = ("remuda fly", "remuda train --fly", "remuda.policy.load_nothing", "--fly", "buffer.capacities", "wings")
    assert [span for span in wrong if is_known(span)] == []
    table: dict[int, list[str]] = {}
    for line, _, cell in cells(COMING_FROM.read_text(encoding="utf-8")):
        table.setdefault(line, []).append(cell)
    assert [line for line, row in table.items() if row[1] == "–" and not row[2]] == []
