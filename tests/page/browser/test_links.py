"""What a link lets in: an operator, a viewer who may only look, and nobody with a wrong token."""

from __future__ import annotations

from pathlib import Path

import pytest

from remuda.tests.page.browser.devtools import Page
from remuda.tests.page.browser.stage import Stage

pytestmark = [pytest.mark.browser, pytest.mark.processes]


def test_the_token_leaves_the_address_at_once(stage: Stage, tab: Page) -> None:
    tab.open(stage.operators_link)
    tab.until_text("Queue", within="h1")
    assert tab.js("location.href") == f"{stage.address}#/queue"
    tab.listen()
    token = stage.operators_link.partition("token=")[2]
    assert not any(token in address for address in tab.requested)


@pytest.mark.parametrize("token", ["", "#token=" + 43 * "A"])
def test_a_link_that_is_not_valid_is_told_in_words(stage: Stage, tab: Page, pictures: Path, token: str) -> None:
    tab.open(stage.address + token)
    tab.until_text("This link is not valid any more" if token else "This page needs its whole link", within="h1")
    tab.until_text("not let in", within="#state")
    tab.screenshot(pictures / f"link_{'wrong' if token else 'none'}.png")
    tab.press("g", "r")
    tab.until("location.hash === '#/runs'")
    tab.until_text("remuda page RUNS_DIR --link")
    assert "goes_on" not in tab.text(), "no view without a token"
    tab.js(f"location.href = {stage.operators_link!r}")  # into the address bar of the same tab
    tab.until_text("Queue", within="h1")


def test_a_viewer_sees_everything_and_no_action(stage: Stage, tab: Page) -> None:
    tab.open(f"{stage.viewers_link}&/run/goes_on")
    tab.until_text("Where the time goes", "looking only", "This link only shows.", " --link")
    buttons = (
        "[...document.querySelectorAll('button')].filter((one) => one.checkVisibility()).map((one) => one.innerText)"
    )
    assert [text for text in tab.js(buttons) if "…" in text] == []
    assert "Submit" not in tab.text("header nav")
    tab.open(f"{stage.viewers_link}&/run/done_1/checkpoints")
    tab.until_text("iteration_0.pth.tar")
    assert "Evaluate" not in "".join(tab.js(buttons))
    tab.open(f"{stage.viewers_link}&/submit")
    tab.until_text("This link only shows.")
    assert tab.js("document.querySelector('main form') === null")
