"""36. A wrong config starts nothing, whatever is wrong: exit code 2, soon, with the line and the nearest valid key.

What each reader refuses, in detail: tests/config/test_explain.py.
"""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

from remuda.tests.cli.terminal import Terminal
from remuda.tests.config.test_explain import BOMB
from remuda.tests.security.sizes import within

SMALL = "name: small\nenv: {id: CartPole-v1}\n"
WRONG = {
    "an unknown key": (SMALL + "learner: {batch_sise: 3}\n", r":3: learner\.batch_sise.*batch_size"),
    "an unknown section": (SMALL + "lerner: {}\n", r":3: lerner.*learner"),
    "a wrong type": (SMALL + "seed: soon\n", r":3: seed"),
    "nan": (SMALL + "learner: {learning_rate: .nan}\n", r":3: learner\.learning_rate.*finite"),
    "a negative number": (SMALL + "learner: {batch_size: -3}\n", r":3: learner\.batch_size"),
    "a key twice": (SMALL + "seed: 1\nseed: 2\n", r":4: seed: given twice \(first on line 3\)"),
    "a tag": (SMALL + "seed: !!python/object/apply:os.system [touch canary]\n", r":3: a tag"),
    "an alias bomb": (BOMB, r":1: .*aliases are not accepted"),
    "ten megabytes": ("#" * 10_000_000, r": larger than \d+ KiB"),
    "no text": ("\udcff", r":1: not UTF-8 text"),
    "another suffix": (SMALL, r": .*\.yaml, \.json or \.py"),
}


@pytest.mark.parametrize("kind", WRONG)
def test_nothing_is_started(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    kind: str,
) -> None:
    text, message = WRONG[kind]
    monkeypatch.chdir(tmp_path)
    config = tmp_path / ("c.toml" if kind == "another suffix" else "c.yaml")
    config.write_bytes(text.encode(errors="surrogateescape"))
    begin_s = time.monotonic()
    ended = Terminal(monkeypatch, capsys).remuda("launch", config, "--runs-dir", tmp_path / "runs")
    assert within(time.monotonic() - begin_s, 2.0)
    assert ended.code == 2
    said = re.sub(r"\s+", " ", ended.err)
    assert re.search(re.escape(str(config)) + message, said), ended.err
    assert "Traceback" not in ended.err
    assert [path.name for path in tmp_path.iterdir()] == [config.name], "nothing is started or written"
