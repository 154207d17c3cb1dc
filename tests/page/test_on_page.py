"""A refusal on the page says what to do there: it names no option of the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from remuda.page.actions import on_page
from remuda.storage.existing_folder import OnExists, RunFolderError, check
from remuda.tests.page.folders import run_folder


@pytest.mark.parametrize("on_exists", ["error", "force", "resume"])
@pytest.mark.parametrize("folder", ["run", "other", "new"])
def test_what_the_run_folder_says(tmp_path: Path, on_exists: OnExists, folder: str) -> None:
    run_folder(tmp_path, "run")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "letter.txt").touch()
    refusal = ""
    try:
        check(tmp_path / folder, on_exists, mode="parallel")
    except RunFolderError as error:
        refusal = on_page(str(error)).replace("`remuda submit --initialize-from`", "")
    assert not any(word in refusal for word in ("--", "in Python"))


def test_a_name_that_is_taken(tmp_path: Path) -> None:
    root = run_folder(tmp_path, "run").root
    with pytest.raises(RunFolderError) as refused:
        check(root, "error", mode="parallel")
    assert on_page(str(refused.value)) == (
        f"{root} already holds a run: continue it with “resume”, start over with “force” (its files are moved to "
        f"{root}/.replaced), keep it and add a date to the new name with “rename”, or choose another name; these are "
        "choices of “If its run folder exists” under Submit"
    )


def test_what_names_no_option_stays_as_it_is() -> None:
    text = "the algorithm 'x' is not allowed here: allow it with --allow-algorithms"
    assert on_page(text) == text
    assert on_page("policy: is “wrong”") == "policy: is “wrong”"
