"""An episode is played again for the page, step by step; where this is impossible, a line has the reason."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

pytest.importorskip("starlette")
from starlette.testclient import TestClient

from remuda.client.episodes import Episode, Record
from remuda.collector.steps import Part
from remuda.page.actions import Actions
from remuda.page.app import make_app
from remuda.page.coordinator_link import CoordinatorLink
from remuda.page.process import Tokens
from remuda.page.replaying import MOST_BEST, MOST_WORST, EpisodeView, listed, png
from remuda.page.views import Views
from remuda.runner.serial import Start
from remuda.tests.page.folders import run_folder
from remuda.tests.runner.runs import run_tiny, tiny_config

TOKENS = Tokens.fresh()


@pytest.mark.processes
def test_an_episode_is_listed_played_and_judged(tmp_path: Path) -> None:
    run_tiny(tiny_config(tmp_path / "user", "stop.max_env_steps=120"), Start(tmp_path / "runs" / "tiny"))
    run_folder(tmp_path / "runs", "unkept", log={"steps": False})
    views = Views(tmp_path / "runs", CoordinatorLink(None))
    with TestClient(make_app(views, Actions(views, None), TOKENS)) as client:

        def said(**body: str) -> list[dict[str, Any]]:
            answer = client.post("/api/replay", json=body, headers={"Authorization": f"Bearer {TOKENS.operator}"})
            return [json.loads(line) for line in answer.text.splitlines()]

        (found,) = said(run="tiny")
        assert found["notes"] == []
        returns = [one["return_mean"] for one in found["episodes"]]
        assert (len(returns), returns) == (found["counted"], sorted(returns))
        worst = found["episodes"][0]
        *lines, verdict = said(run="tiny", episode=worst["id"])
        steps = [line for line in lines if "number" in line]
        progress = [line["played"] for line in lines if "of" in line]
        assert progress == sorted({*progress})
        assert len(progress) <= 100
        assert progress[-1] == lines[-1]["of"]
        assert [step["number"] for step in steps] == [*range(worst["length"] + 1)]
        assert sum(step["rewards"]["agent"] for step in steps[1:]) == pytest.approx(worst["return_mean"])
        assert [steps[1]["policy_version"], steps[-1]["policy_version"]] == worst["versions"]
        assert steps[0]["picture"] is None, "it does not render"
        assert verdict == {"difference": None}
        assert said(run="tiny", episode="9.9.9.9") == [{"error": "there is no episode 9.9.9.9"}]
        (error,) = said(run="unkept")
        assert "log.steps = false" in error["error"]
    views.close()


def test_of_many_episodes_the_worst_and_the_best_are_listed(tmp_path: Path) -> None:
    part = cast("Part", None)
    episodes = [
        Episode(str(number), part, 0, 0, 9, {"a": float(number), "b": 0.0}, (1, 2), counted=number != 5)
        for number in reversed(range(1_201))
    ]
    found = listed(Record(tmp_path, tiny_config(tmp_path), [], episodes, ["a gap"]))
    counted = [number for number in range(1_201) if number != 5]
    assert [int(one.id) for one in found.episodes] == counted[:MOST_WORST] + counted[-MOST_BEST:]
    assert (found.episodes[0], found.counted, found.notes) == (EpisodeView("0", 0.0, 9, (1, 2)), 1_200, ["a gap"])


def test_a_picture_is_a_png_file() -> None:
    image = pytest.importorskip("PIL.Image", reason="pip install 'remuda[plot]'")
    picture = np.random.default_rng(0).integers(0, 256, (5, 7, 3), np.uint8)
    assert (np.asarray(image.open(io.BytesIO(png(picture)))) == picture).all()
