"""Counters are believed only if the steps that environments say they took fit to them."""

from __future__ import annotations

from pathlib import Path

import pytest

from remuda.benchmarks import exact_counters
from remuda.benchmarks.effective_training import CONFIG
from remuda.benchmarks.exact_counters import InexactError, check_exact
from remuda.config.load import load_config

MAY_LACK = 3 * (64 + 3)
"""Of one lost collector: two chunks of 64 that it has not announced, a third, and the rest of a step of four."""


@pytest.fixture
def counts(tmp_path: Path) -> Path:
    for pid, steps in ((1, 600), (2, 400)):
        (tmp_path / str(pid)).write_text(f"{steps:012d}")
    return tmp_path


@pytest.mark.parametrize(
    ("env_step", "lost", "exact"),
    [(1_000, 0, True), (999, 0, False), (1_001, 1, False), (1_000 - MAY_LACK, 1, True), (999 - MAY_LACK, 1, False)],
)
def test_nothing_is_lost_but_what_was_in_work(
    counts: Path, monkeypatch: pytest.MonkeyPatch, env_step: int, lost: int, exact: bool
) -> None:
    monkeypatch.setattr(exact_counters, "assert_exact_run", lambda run, all_kept: env_step)
    config = load_config(CONFIG).config

    def check() -> str:
        return check_exact(counts, config, counts, [1, 2, 3], lost=lost)

    if exact:
        assert check().startswith(f"{env_step} env steps counted, 1000 taken")
        return
    with pytest.raises(InexactError, match=f"{env_step} env steps counted, 1000 taken"):
        check()


def test_a_wrong_ledger_is_told(counts: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(run: Path, all_kept: bool) -> int:
        raise AssertionError("chunks are counted under two leases")

    monkeypatch.setattr(exact_counters, "assert_exact_run", wrong)
    with pytest.raises(InexactError, match="chunks are counted under two leases"):
        check_exact(counts, load_config(CONFIG).config, counts, [1, 2], lost=0)
