"""The id of a machine's start is the kernel's, and empty where there is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from remuda.storage import ownership


def test_it_is_the_kernel_s(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "boot_id"
    monkeypatch.setattr(ownership, "BOOT_ID", file)
    assert ownership.boot_id() == ""
    file.write_text("3f2a77\n")
    assert ownership.boot_id() == "3f2a77"
