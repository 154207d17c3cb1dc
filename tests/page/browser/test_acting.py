"""What an operator does by the page: submit, evaluate, resume, change priorities, stop; by mouse, and by keys alone."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from pathlib import Path

import pytest

from remuda.tests.page.browser.devtools import Page
from remuda.tests.page.browser.stage import HARM, Stage
from remuda.tests.parallel.user_folder import CONFIG, ENDLESS, UserFolder
from remuda.tests.patience import until
from remuda.wire.messages import OVER

pytestmark = [pytest.mark.browser, pytest.mark.processes]

SHORT: dict[str, dict[str, object]] = {**CONFIG, "stop": {"max_env_steps": 2000}}
SUBMIT = "button.first"
EDITOR = ".editor textarea"
RIGHT = "This config has no problems"
WHY = ".why"
"""Where a run says why it waits, or how it ended."""


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Generator[Stage]:
    """A herd of its own, whose workers are free before each test."""
    made = Stage(tmp_path_factory.mktemp("acting"))
    try:
        made.gather()
        yield made
    finally:
        made.herd.end()


@pytest.fixture(autouse=True)
def free(stage: Stage) -> Generator[None]:
    """At the end nothing runs, and nothing waits."""
    yield
    with stage.herd.client() as client:
        for each in client.status().experiments:
            if each.state not in OVER:
                client.stop(each.id, now=True)
    until(lambda: all(each.state in OVER for each in stage.herd.status().experiments), "the end of all runs")


@pytest.fixture(scope="module")
def short(stage: Stage) -> UserFolder:
    return UserFolder.make(stage.folder / "short", SHORT)


@pytest.fixture(scope="module")
def endless(stage: Stage) -> UserFolder:
    return UserFolder.make(stage.folder / "endless", ENDLESS)


@pytest.fixture(scope="module")
def trained(stage: Stage, short: UserFolder) -> str:
    """A run that has finished."""
    stage.herd.submit(short, "trained")
    stage.herd.wait_over("trained")
    return "trained"


def typed(user: UserFolder, name: str, changes: Mapping[str, str] | None = None) -> str:
    """A user's config as they type it into the page: under a name, with the folder of their code."""
    text = user.config.read_text().replace("name: horse", f"name: {name}")
    for before, after in (changes or {}).items():
        assert before in text
        text = text.replace(before, after)
    return f"{text}source_dir: {user.root}\n"


def test_problems_are_shown_as_a_config_is_typed(stage: Stage, short: UserFolder, tab: Page, pictures: Path) -> None:
    wrong = typed(short, "wrong", {"batch_size: 32": "batch_sise: 32"})
    line = wrong.splitlines().index("  batch_sise: 32") + 1
    tab.open(stage.link("submit"))
    tab.type(EDITOR, wrong)
    tab.until_text("1 problem:", f"Line {line}", "batch_sise", within="form")
    assert tab.js("document.querySelector('.editor li.wrong').innerText") == str(line)
    tab.screenshot(pictures / "submit_problem.png")
    tab.click("button", f"Line {line}")
    selected = "(({value, selectionStart, selectionEnd}) => value.slice(selectionStart, selectionEnd))"
    assert tab.js(f"{selected}(document.querySelector({EDITOR!r}))") == "  batch_sise: 32"
    tab.click(SUBMIT)
    tab.until(f"!document.querySelector({SUBMIT!r}).disabled", "the answer")
    tab.until_text("the config has problems", f"Line {line}", within="form")
    assert tab.js("location.hash") == "#/submit"
    assert stage.herd.status().experiments == []

    tab.type(EDITOR, wrong + f"{HARM!r}: 1\n")
    tab.until_text("2 problems:", HARM, within="form")
    assert tab.js("window.harmed === undefined && document.querySelector('main img') === null")
    tab.type(EDITOR, typed(short, "wrong"))
    tab.until_text(f"{RIGHT}: wrong.", within="form")
    assert tab.js("document.querySelectorAll('li.wrong, .errors li').length") == 0


def test_a_config_is_submitted_and_trains_to_its_end(stage: Stage, short: UserFolder, tab: Page) -> None:
    tab.open(stage.link("submit"))
    tab.type(EDITOR, typed(short, "by_page"))
    tab.until_text(f"{RIGHT}: by_page.")
    tab.click(SUBMIT)
    tab.until("location.hash === '#/run/by_page'")
    tab.until_text("Finished: it has made 2,000 environment steps.", within=WHY)
    assert stage.herd.experiment("by_page").state == "finished"

    tab.open(stage.link("submit"))
    tab.type(EDITOR, typed(short, "by_page"))
    tab.until_text(f"{RIGHT}: by_page.")
    tab.click(SUBMIT)
    tab.until("document.querySelector('form [role=status]').className === 'bad'", "a refusal")
    refusal = tab.text("form [role=status]")
    assert all(part in refusal for part in ("by_page", "“rename”", "“If its run folder exists”")), refusal
    assert "--" not in refusal, "options are for the command line"
    tab.choose("form .cards select", "rename")
    tab.click(SUBMIT)
    tab.until("location.hash.startsWith('#/run/by_page') && location.hash !== '#/run/by_page'", "another name")


def test_a_checkpoint_is_evaluated(stage: Stage, trained: str, tab: Page, pictures: Path) -> None:
    tab.open(stage.run(trained))
    tab.click("button", "Evaluate …")
    tab.type("dialog input[type=number]", "3")
    tab.screenshot(pictures / "evaluate.png")
    tab.click("dialog button", "Evaluate")
    tab.until(f"location.hash === '#/run/{trained}/checkpoints'")
    tab.until_text("done", "±", within="section:last-of-type")


def test_a_note_is_written_found_and_stays_text(stage: Stage, trained: str, tab: Page, pictures: Path) -> None:
    tab.open(stage.run(trained))
    tab.click("button", "Add note …")
    tab.type("dialog textarea", f"{HARM} slow")
    tab.type("dialog input", f"baseline, {'x' * 41}")
    tab.click("dialog button", "Save")
    tab.until_text("at most 40 are allowed", within="dialog [role=alert]")
    tab.type("dialog input", "baseline, <b>lr")
    tab.click("dialog button", "Save")
    tab.until("!document.querySelector('dialog')")
    tab.until_text(f"{HARM} slow", "<b>lr", "Edit note …", within="main")
    tab.screenshot(pictures / "note.png")
    tab.open(stage.link("runs"))
    tab.click("button.chip", "<b>lr")
    tab.until("document.querySelectorAll('tbody tr').length === 1 && document.querySelector('.noted')")
    assert tab.js("window.harmed === undefined && document.querySelector('main b, main img') === null")


def test_a_run_is_resumed_with_another_bound(stage: Stage, trained: str, tab: Page) -> None:
    tab.open(stage.run(trained))
    tab.until_text("Finished:", within=WHY)
    tab.click("button", "Resume …")
    tab.type("dialog textarea", "stop.max_env_steps=0.5")
    tab.click("dialog button", "Resume")
    tab.until_text("max_env_steps", within="dialog [role=alert]")
    tab.type("dialog textarea", "stop.max_env_steps=3000")
    tab.click("dialog button", "Resume")
    tab.until("!document.querySelector('dialog')", "it is in the queue again")
    tab.until_text("Finished: it has made 3,000 environment steps.", within=WHY)
    until(lambda: stage.herd.experiment(trained).state in OVER, "it goes on to the new bound")
    assert stage.herd.experiment(trained).env_step >= 3000


def test_the_priority_says_who_is_next(stage: Stage, endless: UserFolder, tab: Page, pictures: Path) -> None:
    for name in ("first", "second", "third"):
        stage.herd.submit(endless, name)
    stage.herd.wait_env_step("first", 100)
    tab.open(stage.run("third"))
    tab.until_text("Waits for 1 learner, ", "first has them; it is number 2 in the queue.", within=WHY)
    tab.click("button", "Priority …")
    tab.type("dialog input", "7")
    tab.screenshot(pictures / "priority.png")
    tab.press("Enter")
    tab.until_text("it is number 1 in the queue.", within=WHY)
    tab.until_text("priority 7")

    tab.open(stage.run("first"))
    tab.click("button", "Stop …")
    tab.click("dialog button", "Cancel")
    tab.until("!document.querySelector('dialog')")
    assert stage.herd.experiment("first").state == "running"
    tab.click("button", "Stop …")
    tab.click("dialog input[type=checkbox]")
    tab.click("dialog button", "Stop it")
    tab.until_text("Stopped: somebody asked for it.", within=WHY)
    tab.open(stage.link("queue"))
    tab.until("[...document.querySelectorAll('tbody tr')][0].innerText.match(/third[^]*running/)", "third has workers")
    assert stage.herd.experiment("second").state == "queued"
