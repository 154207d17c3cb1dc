"""A browser for all tests of this folder, a tab for each, and a coordinator with runs to look at."""

from __future__ import annotations

import os
from collections.abc import Generator
from pathlib import Path

import pytest

from remuda.tests.page.browser.devtools import MISSING, Browser, Page, found
from remuda.tests.page.browser.stage import Stage

PICTURES = "REMUDA_PICTURES"
"""The variable that names a folder for screenshots, so that people can look at them."""


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Generator[Browser]:
    if found() is None:
        pytest.skip(MISSING)
    with Browser(tmp_path_factory.mktemp("chromium")) as opened:
        yield opened


@pytest.fixture(scope="session")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Generator[Stage]:
    pytest.importorskip("uvicorn", reason="pip install 'remuda[page]'")
    made = Stage(tmp_path_factory.mktemp("stage"))
    try:
        made.fill()
        yield made
    finally:
        made.herd.end()


@pytest.fixture
def tab(browser: Browser) -> Generator[Page]:
    """A tab. At its end nothing may have gone wrong in it, and nothing may have come from elsewhere."""
    page = browser.page()
    yield page
    page.listen()
    page.close()
    assert page.wrong == []
    here = ("http://127.0.0.1:", "blob:http://127.0.0.1:", "about:")
    assert [address for address in page.requested if not address.startswith(here)] == []


@pytest.fixture(scope="session")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where screenshots go."""
    folder = Path(os.environ.get(PICTURES) or tmp_path_factory.mktemp("pictures"))
    folder.mkdir(parents=True, exist_ok=True)
    return folder
