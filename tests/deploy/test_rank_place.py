"""Which learner rank a process is, from the environment variables that torchrun sets."""

from __future__ import annotations

import pytest

from remuda.deploy.rank_place import VARIABLES, RankPlace, RankPlaceError, rank_place

TORCHRUNS = {
    "RANK": "3",
    "WORLD_SIZE": "4",
    "LOCAL_RANK": "1",
    "MASTER_ADDR": "one",
    "MASTER_PORT": "29500",
    "TORCHELASTIC_RUN_ID": "horses",
}


def test_a_rank_knows_its_place() -> None:
    assert rank_place(TORCHRUNS) == RankPlace(3, 4, 1, "one", 29500, "horses")


@pytest.mark.parametrize("name", VARIABLES)
def test_without_one_of_the_variables_nobody_is_a_rank(name: str) -> None:
    assert rank_place({**TORCHRUNS, name: ""}) is None
    assert rank_place({key: value for key, value in TORCHRUNS.items() if key != name}) is None


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(RankPlaceError, match="WORLD_SIZE is 'two', and no number"):
        rank_place({**TORCHRUNS, "WORLD_SIZE": "two"})
    with pytest.raises(RankPlaceError, match="RANK is 4, and WORLD_SIZE 4"):
        rank_place({**TORCHRUNS, "RANK": "4"})
