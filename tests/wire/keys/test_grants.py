"""What the coordinator has sealed is believed, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from remuda.wire.keys.authorized import Grants
from remuda.wire.keys.pair import new_pair
from remuda.wire.messages import Grant

GRANT = Grant("/runs/x", "collector", "aaaaaaaa-0000-4000-8000-000000000001", 1, "policy_x")
OTHERS: dict[str, Any] = {
    "run_dir": "/runs/y",
    "role": "evaluator",
    "worker": "bbbbbbbb-0000-4000-8000-000000000001",
    "incarnation": 2,
    "policy_file": "policy_y",
    "seal": "",
}


def test_a_sealed_grant_is_genuine_also_after_a_restart() -> None:
    server = new_pair("coordinator")
    sealed = Grants(server).seal(GRANT)
    assert Grants(server).is_genuine(sealed)
    assert Grants(server).seal(sealed) == sealed


@pytest.mark.parametrize("field", Grant.__struct_fields__)
def test_a_change_of_any_field_breaks_the_seal(field: str) -> None:
    grants = Grants(new_pair("coordinator"))
    assert not grants.is_genuine(replace(grants.seal(GRANT), **{field: OTHERS[field]}))
