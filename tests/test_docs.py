"""The pages of `make site`: their menu, and what they say about names, settings, files and layers."""

from __future__ import annotations

import re
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest

from remuda import learning
from remuda.config.algorithms.registry import BUILT_IN
from remuda.config.explain import all_keys
from remuda.tests.test_coming_from import verbs
from remuda.tests.test_house import LAYERS

ROOT = Path(__file__).parents[1]
PAGES = sorted((ROOT / "docs").rglob("*.md"))
REFERENCES = [
    (page.relative_to(ROOT).as_posix(), name)
    for page in PAGES
    for name in re.findall(r"^::: ([\w.]+)$", page.read_text(encoding="utf-8"), re.M)
]


def test_every_page_is_in_the_menu() -> None:
    menu = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")[2]
    listed = re.findall(r": ([\w/-]+\.md)$", menu, re.M)
    written = {page.relative_to(ROOT / "docs").as_posix() for page in PAGES}
    assert sorted(listed) == sorted(written | {"protocol.md"}), "`make site` writes protocol.md"


@pytest.mark.parametrize(("page", "name"), REFERENCES)
def test_every_name_of_the_reference_is_there(page: str, name: str) -> None:
    """A module, or a name in one."""
    assert is_there(name), f"{page}: {name}"


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


ALGORITHMS = (ROOT / "docs" / "built-in-algorithms.md").read_text(encoding="utf-8")
TABLE = dict(re.findall(r"^\| \[`(\w+)`\]\(#([\w-]+)\) \|", ALGORITHMS, re.M))
SECTIONS = {text.partition("\n")[0].lower().replace(" ", "-"): text for text in ALGORITHMS.split("\n## ")[1:]}


@cache
def settings_of(algorithm: str) -> set[str]:
    return set(all_keys(algorithm))


def test_every_algorithm_has_a_line_and_a_section() -> None:
    assert set(TABLE) == set(BUILT_IN)
    assert set(TABLE.values()) == set(SECTIONS) - {"what-all-have"}


@pytest.mark.parametrize("algorithm", BUILT_IN)
def test_what_a_section_says_to_set_can_be_set(algorithm: str) -> None:
    """What is set as code with a dot or in the first column of a table."""
    section = SECTIONS[TABLE[algorithm]]
    named = re.findall(r"`((?:policy|buffer|learner|env|collector)\.\w+)", section)
    assert len(named) > 3
    assert set(named) <= settings_of(algorithm), algorithm


@pytest.mark.parametrize("algorithm", BUILT_IN)
def test_a_table_says_what_each_setting_of_an_algorithm_does(algorithm: str) -> None:
    """That of its own section, or of what all have."""
    tables = "\n".join(re.findall(r"^\|.*", SECTIONS[TABLE[algorithm]] + SECTIONS["what-all-have"], re.MULTILINE))
    own = {key for key in settings_of(algorithm) if key.startswith("policy.")}
    assert own - set(re.findall(r"`(policy\.\w+)", tables)) == {"policy.type"}


def test_what_all_have_can_be_set() -> None:
    named = set(re.findall(r"`((?:policy|learner)\.\w+)", SECTIONS["what-all-have"]))
    for algorithm in BUILT_IN:
        assert named <= settings_of(algorithm), algorithm


def test_the_files_that_it_names_are_there() -> None:
    links = re.findall(r"\]\(\.\./([\w/.]+)\)", ALGORITHMS)
    assert len(links) > 15
    for link in links:
        assert (ROOT / link).is_file(), link


def test_every_example_is_on_the_page_of_examples() -> None:
    page = (ROOT / "docs" / "examples.md").read_text(encoding="utf-8")
    for example in (ROOT / "examples").glob("*.yaml"):
        assert f"](../examples/{example.name})" in page, "make docs"


def anchors(page: Path) -> set[str]:
    """The headings of a page as links name them, and its explicit anchors."""
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    headings = re.findall(r"^#+ (.*)$", text, re.M)
    slugs = {re.sub(r"[^\w -]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}
    return slugs | set(re.findall(r'<a id="([\w.-]+)">', text))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_to_a_heading_finds_it(page: Path) -> None:
    for target, anchor in re.findall(r"\]\(([\w./-]*)#([\w.-]+)\)", page.read_text(encoding="utf-8")):
        file = (page.parent / target).resolve() if target else page
        if file.suffix == ".md" and file.parent.name != "api":  # mkdocs writes the headings of api/
            assert anchor in anchors(file), f"{target}#{anchor}"


def test_what_is_not_there_is_noticed() -> None:
    assert is_there("remuda.wire")
    assert is_there("remuda.train")
    assert not is_there("remuda.trian")


def test_the_examples_of_pieces_run_as_they_stand() -> None:
    page = (ROOT / "docs" / "learning.md").read_text(encoding="utf-8")
    namespace: dict[str, object] = {}
    for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL):
        exec(block, namespace)
    assert set(learning.__all__) <= set(re.findall(r"\w+", page)), "every piece is on the page"


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


def test_every_test_that_keeps_a_promise_exists() -> None:
    """A file, `file::test` or `file::Class`; a folder stands for all its tests."""
    page = (ROOT / "docs" / "promises.md").read_text(encoding="utf-8")
    named = re.findall(r"`(tests/[\w/]+(?:\.py)?)(?:::(\w+))?`", page)
    assert len(named) > 100
    for path, test in named:
        assert (ROOT / path).exists(), path
        source = "" if not test else (ROOT / path).read_text(encoding="utf-8")
        assert not test or f"def {test}(" in source or f"class {test}:" in source, f"{path}::{test}"
