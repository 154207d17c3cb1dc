"""The house rules that a machine can check: layers, packaging, docstrings, links, no pickle."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from remuda.config.algorithms.base import BuiltInConfig
from remuda.config.algorithms.registry import BUILT_IN
from remuda.tests.imports import imported_by
from remuda.tests.patience import HANG_S

pytestmark = pytest.mark.xdist_group("the house")
"""Every file is parsed once."""

ROOT = Path(__file__).resolve().parents[1]

LAYERS = (
    {"wire", "storage", "config"},
    {"environments"},
    {"policy", "buffer", "logbook"},
    {"worker", "training", "learning"},
    {"collector", "evaluator", "learner", "coordinator"},
    {"deploy", "runner"},
    {"client"},
    {"page"},
    {"cli"},
)
"""From the ground up. A package imports itself and the layers below it; those of the ground may also import each other
as long as no circle closes. So roles never import each other, and neither do policy, buffer and logbook."""

GROUND = LAYERS[0]
LAYER_OF = {package: layer for layer, packages in enumerate(LAYERS) for package in packages}

PICKLERS = {"pickle", "cloudpickle", "joblib", "dill", "shelve", "marshal"}
MAY_PICKLE = {"storage/env_files.py"}
"""vars.pkl of the run folder, which is written for people, and read only where a user says --trust-code."""

MAY_KNOW_ALGORITHMS = ("config/algorithms/", "policy/algorithms/", "policy/schedules.py")
"""Where their settings, their registry, their folders and what these share are. All others ask what an algorithm says
of itself."""
ASKS_WHAT_IS_COMPILED = {"cli/doctor.py": "remuda.policy.algorithms.muzero.search.search"}
"""Of the installation, as setup.py has it."""

WITHOUT_TORCH = [
    "remuda.client.api",
    "remuda.cli.app",
    "remuda.client.running",
    "remuda.coordinator.service",
    "remuda.wire.messages",
    "remuda.buffer.index",
    "remuda.policy.schedules",
    "remuda.policy.algorithms.actor_critic.entries",
    "remuda.learning.acting",
]
USED_WITHOUT_TORCH = (
    "remuda.train, remuda.launch, remuda.Client, remuda.ExperimentConfig, remuda.ConfigError, remuda.learning.vtrace"
)
"""Names that are loaded at their first use."""


def product_files() -> list[Path]:
    return sorted(path for package in LAYER_OF for path in (ROOT / package).rglob("*.py"))


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@dataclass(frozen=True)
class Source:
    """What the rules look at in a file. Its syntax tree is not kept: those of all files are millions of objects."""

    docstring: str
    imports: tuple[tuple[int, str], ...]
    """Line and dotted name of everything imported anywhere, inside functions, too."""
    taken: frozenset[tuple[str, str]]
    """Module and name of each `from … import …`."""
    trust_code: frozenset[str]
    """What the parameters and arguments of this name are set to."""
    algorithms: frozenset[tuple[int, str]]
    """Line and name of each `type`, class of settings or module of a built-in algorithm."""


@cache
def source(path: Path) -> Source:
    return source_of(path.read_text(encoding="utf-8"))


def source_of(code: str) -> Source:
    """Walk over a syntax tree once for all rules."""
    module = ast.parse(code)
    imports: list[tuple[int, str]] = []
    taken: set[tuple[str, str]] = set()
    told: set[str] = set()
    algorithms: set[tuple[int, str]] = set()
    docstrings: set[ast.expr] = set()
    for node in ast.walk(module):
        if isinstance(node, ast.Expr):
            docstrings.add(node.value)
        elif isinstance(node, ast.Constant):
            if isinstance(node.value, str) and node.value in BUILT_IN and node not in docstrings:
                algorithms.add((node.lineno, repr(node.value)))
        elif isinstance(node, ast.Name | ast.Attribute | ast.alias):
            name = str(getattr(node, "attr", "") or getattr(node, "id", "") or getattr(node, "name", ""))
            if name.rpartition(".")[2] in SETTINGS_CLASSES:
                algorithms.add((node.lineno, name))
        elif isinstance(node, ast.Import):
            imports += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            # `from remuda import wire` names the package in the alias
            names = [f"remuda.{alias.name}" for alias in node.names] if node.module == "remuda" else [node.module]
            imports += [(node.lineno, name) for name in names]
            taken |= {(node.module, alias.name) for alias in node.names}
        elif isinstance(node, ast.arguments | ast.keyword):
            told |= {ast.unparse(value) for name, value in named_values(node) if name == "trust_code"}
    algorithms |= {(line, name) for line, name in imports if name.startswith("remuda.policy.algorithms.")}
    docstring = ast.get_docstring(module) or ""
    return Source(docstring, tuple(imports), frozenset(taken), frozenset(told), frozenset(algorithms))


def named_values(node: ast.arguments | ast.keyword) -> Iterator[tuple[str | None, ast.expr]]:
    """Yield the defaults of parameters, and a named argument."""
    if isinstance(node, ast.keyword):
        yield node.arg, node.value
        return
    named = zip((*node.posonlyargs, *node.args)[::-1], node.defaults[::-1], strict=False)
    only = zip(node.kwonlyargs, node.kw_defaults, strict=True)
    yield from ((argument.arg, value) for argument, value in (*named, *only) if value)


def settings_classes(of: type[BuiltInConfig] = BuiltInConfig) -> set[str]:
    """Names of the classes of settings that built-in algorithms have, and share."""
    ours = {kind for kind in of.__subclasses__() if kind.__module__.startswith("remuda.config.")}
    shared = {"EncoderConfig", "EncodedConfig", "NetworkConfig"}
    return {kind.__name__ for kind in ours}.union(*map(settings_classes, ours)) - shared


SETTINGS_CLASSES = settings_classes()


def arrows(imports: Iterable[tuple[int, str]], package: str) -> Iterator[tuple[int, str]]:
    """Line and target of each import of another package of ours."""
    for line, name in imports:
        parts = name.split(".")
        if parts[0] == "remuda" and parts[1:2] != [package]:
            yield line, parts[1] if len(parts) > 1 else "remuda"


def allowed(source: str, target: str) -> bool:
    if target not in LAYER_OF:
        return False
    return LAYER_OF[target] < LAYER_OF[source] or (source in GROUND and target in GROUND)


OLD_WORDS = (
    "lest|anew|in hand|in vain|to be had|for ever|at hand|in the midst|[a-z]*-?manieth|is said|be it|his|him|but for"
    "|as of now|none but|own accord|hence|thereby|shall|hears? of|heard of"
)
"""Words that a reader whose second language is English has to look up."""


def found_by_git(*arguments: str) -> list[str]:
    """Search all tracked files; a checkout without git (an unpacked sdist) has none."""
    command = ["git", "grep", "-nE", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=HANG_S).stdout.splitlines()


def test_pages_and_comments_are_written_in_today_s_english() -> None:
    kinds = [f"*.{suffix}" for suffix in ("py", "md", "c", "yaml", "toml")]
    assert found_by_git("-wi", OLD_WORDS, "--", *kinds, ":!tests/test_house.py") == []


def test_no_committed_file_names_a_path_of_one_machine() -> None:
    assert found_by_git("-a", "(^|[^[:alnum:]_.~-])/wor[k]/[[:alnum:]_.]") == []


def test_imports_point_down() -> None:
    wrong = [
        f"{relative(path)}:{line}: {package} must not import {target}"
        for path in product_files()
        for package in [path.relative_to(ROOT).parts[0]]
        for line, target in arrows(source(path).imports, package)
        if not allowed(package, target)
    ]
    assert wrong == []


def test_nobody_knows_an_algorithm_but_its_folder_and_the_registry() -> None:
    wrong = [
        f"{relative(path)}:{line}: {name}"
        for path in product_files()
        if not relative(path).startswith(MAY_KNOW_ALGORITHMS)
        for line, name in sorted(source(path).algorithms)
        if ASKS_WHAT_IS_COMPILED.get(relative(path)) != name
    ]
    assert wrong == [], "ask what AlgorithmConfig or Declaration says"


def test_modules_form_no_circle() -> None:
    """Imports inside functions and for type checkers count, too."""
    assert in_circles({module_name(path): reads(source(path)) for path in product_files()}) == set()


def test_files_in_c_form_no_circle() -> None:
    """A header declares what its own file defines. So includes show whose functions a file calls."""
    sources = {
        path: path.read_text(encoding="utf-8") for package in LAYER_OF for path in (ROOT / package).rglob("*.[ch]")
    }
    included: dict[str, set[str]] = {}
    for path, code in sources.items():
        included.setdefault(path.stem, set()).update(re.findall(r'^#include "(\w+)\.h"', code, re.MULTILINE))
    assert in_circles(included) == set()
    foreign = [
        f"{relative(path)}: {name}"
        for path, code in sources.items()
        for name in re.findall(r"^\w[\w *]*\b(\w+)\([^;{]*\);", code, re.MULTILINE)
        if not re.search(rf"^{name}\(", sources.get(path.with_suffix(".c"), ""), re.MULTILINE)
    ]
    assert foreign == []


def reads(file: Source) -> set[str]:
    """Names of all modules that a file imports, and of what it takes from them, which may be modules."""
    return {name for _, name in file.imports} | {f"{module}.{name}" for module, name in file.taken}


def module_name(path: Path) -> str:
    return f"remuda.{relative(path.with_suffix('')).replace('/', '.').removesuffix('.__init__')}"


def in_circles(modules: Mapping[str, Set[str]]) -> set[str]:
    """Modules that import themselves by way of others."""
    return {module for module in modules if module in reached(module, modules)}


def reached(module: str, modules: Mapping[str, Set[str]]) -> set[str]:
    """Modules that this module imports, and those that they import."""
    found: set[str] = set()
    ahead = modules[module] - {module}
    while ahead:
        found |= ahead
        ahead = {name for one in ahead for name in modules.get(one, ())} - found
    return found


def test_messages_are_imported_from_their_package_not_from_its_files() -> None:
    assert (
        found_by_git(r"^ *(from|import) remuda\.wire\.messages\.", "--", "*.py", ":!wire/messages", ":!__init__.py")
        == []
    )


def test_a_client_of_a_coordinator_knows_nothing_of_it_but_messages() -> None:
    """But messages, and how to ask git about the folder that it runs in itself."""
    names = {name for _, name in source(ROOT / "client" / "client.py").imports if name.startswith("remuda.")}
    assert {name for name in names if name.split(".")[1] not in {"config", "wire"}} == {"remuda.storage.git"}


def test_the_rules_find_mistakes() -> None:
    code = '''"""dqn"""
from remuda.config.algorithms.q_learning import DqnConfig as C
from remuda.policy.algorithms.sac import acting
x = {"ppo": 1}
def f(trust_code=True):
    import remuda.wire as w
    return q_learning.RainbowConfig, "a dqn"
'''
    seen = source_of(code)
    names = [name for _, name in sorted(seen.algorithms)]
    assert names == ["DqnConfig", "remuda.policy.algorithms.sac", "'ppo'", "RainbowConfig"]
    assert sorted(arrows(seen.imports, "policy")) == [(2, "config"), (6, "wire")]
    assert seen.trust_code == {"True"}
    assert "remuda.policy.algorithms.sac.acting" in reads(seen)
    assert in_circles({"a": {"b"}, "b": {"c", "os"}, "c": {"b", "d"}, "d": {"d", "e"}, "e": set()}) == {"b", "c"}
    assert allowed("page", "client")
    assert allowed("config", "storage")
    assert not any(allowed(*pair) for pair in (("collector", "learner"), ("wire", "buffer"), ("cli", "tests")))


@cache
def pyproject() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def test_every_package_has_a_layer_and_no_module_lies_at_the_root() -> None:
    folders = {path.parent.name for path in ROOT.glob("*/__init__.py")} - {"benchmarks", "tests"}
    assert folders <= set(LAYER_OF)
    at_root = {path.name for path in ROOT.glob("*.py")}
    assert at_root == {"__init__.py", "setup.py"}, "a module at the root would be installed as one of remuda"


@pytest.mark.processes
def test_what_is_built_is_every_module_of_the_packages_and_no_other(tmp_path: Path) -> None:
    pytest.importorskip("setuptools")
    build = f"['build', '--quiet', 'build_py', '--build-lib', {str(tmp_path)!r}]"  # pip does not call it setup.py
    program = f"import sys; sys.argv = {build}; exec(open('setup.py').read())"
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, timeout=HANG_S, check=True)
    built = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()}
    assert {name for name in built if name.count("/") < 2} == {"remuda/__init__.py", "remuda/py.typed"}
    modules = {name.removeprefix("remuda/") for name in built if name.endswith(".py") and "/examples/" not in name}
    assert modules == {"__init__.py", *(relative(path) for path in product_files())}
    assert {name.split("/")[1] for name in built if name.count("/") > 1} == {*LAYER_OF, "examples"}


def test_checkers_find_the_packages_by_themselves() -> None:
    """So a new package is checked without being added to a list."""
    tool = pyproject()["tool"]
    assert tool["mypy"]["packages"] == ["remuda"]
    assert "include" not in tool["pyright"]
    assert not any(name in {"*", *LAYER_OF} for name in tool["pyright"]["exclude"])


def test_no_file_is_imported_under_two_names() -> None:
    """`buffer.index` must never be importable beside `remuda.buffer.index`."""
    own = "|".join(LAYER_OF)
    of_users = (":!examples", ":!tests/policy/export", ":!tests/runner/runs.py")
    assert found_by_git(f"^ *(from|import) ({own})[ .]", "--", "*.py", *of_users) == []


def test_every_module_says_what_it_is_in_one_line() -> None:
    wrong: list[str] = []
    for path in product_files():
        first = source(path).docstring.partition("\n")[0]
        if not first or first[-1] not in ".?!:;,)" or len(first) < 10:
            wrong.append(f"{relative(path)}: {first!r}")
    assert wrong == []


def test_nobody_pickles() -> None:
    wrong = [
        f"{relative(path)}:{line}: imports {name}"
        for path in [*product_files(), *(ROOT / "examples").rglob("*.py"), *(ROOT / "benchmarks").glob("*.py")]
        if relative(path) not in MAY_PICKLE
        for line, name in source(path).imports
        if name.split(".")[0] in PICKLERS
    ]
    assert wrong == []


def test_vars_pkl_is_read_in_one_place_which_is_asked_by_two() -> None:
    def importers(module: str, name: str) -> set[str]:
        return {relative(path) for path in product_files() if (module, name) in source(path).taken}

    assert importers("remuda.storage.env_files", "unpickle_environment") == {"environments/rebuild.py"}
    assert importers("remuda.environments.rebuild", "rebuild") == {
        "cli/playing.py",
        "client/recorded.py",
        "policy/files/functions.py",
    }


def test_nobody_trusts_code_unasked() -> None:
    """Where `trust_code` has a default it is False, and who passes it on passes what a caller said."""
    told = {value for path in product_files() for value in source(path).trust_code}
    assert told == {"False", "trust_code", "options.trust_code", "self._trust_code"}


@pytest.mark.processes
def test_control_plane_and_acting_start_without_torch() -> None:
    brought = imported_by(f"import {', '.join(WITHOUT_TORCH)}\n{USED_WITHOUT_TORCH}")
    assert "remuda" in brought
    assert "torch" not in brought


_OF_OTHERS = {"matplotlib", "pandas", "pygame", "rich", "sympy", "tensorboardX", "typer"}
NOT_IMPORTED = {
    "remuda.collector.service": {*_OF_OTHERS, "asyncio", "torch"},
    "remuda.coordinator.__main__": {*_OF_OTHERS, "asyncio", "gymnasium", "torch"},
    "remuda.deploy.roles": _OF_OTHERS,  # torch itself brings asyncio
}
"""What each process of a herd must do without as it starts."""


@pytest.mark.processes
@pytest.mark.parametrize("module", NOT_IMPORTED)
def test_workers_and_coordinators_start_without_what_only_others_need(module: str) -> None:
    """Each process of a herd imports on its own; asyncio alone takes a twentieth of a collector's time for it."""
    assert not imported_by(f"import {module}") & NOT_IMPORTED[module]


def committed_files() -> list[Path]:
    """What git tracks and has on disk; a checkout without git (an unpacked sdist) has nothing to check."""
    listing = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, timeout=HANG_S)
    paths = [ROOT / name for name in listing.stdout.split("\0") if name]
    return [path for path in paths if path.is_file()]


def test_every_file_that_a_page_links_or_names_is_there() -> None:
    """A name in backticks is a path from the root. The changelog may name old files."""
    link, named = re.compile(r"\[[^\]]*\]\(([^)\s]+)[^)]*\)"), re.compile(r"`((?:\w+/)+\w+\.(?:py|c))`")
    wrong: list[str] = []
    for page in committed_files():
        if page.suffix != ".md":
            continue
        text = page.read_text(encoding="utf-8")
        for target in map(str, link.findall(text)):
            file = target.partition("#")[0]
            if file and "://" not in file and not file.startswith("mailto:") and not (page.parent / file).exists():
                wrong.append(f"{relative(page)}: {target}")
        for path in map(str, named.findall(text)) if page.name != "CHANGELOG.md" else ():
            if (ROOT / path.partition("/")[0]).is_dir() and not (ROOT / path).is_file():
                wrong.append(f"{relative(page)}: {path}")
    assert wrong == []
