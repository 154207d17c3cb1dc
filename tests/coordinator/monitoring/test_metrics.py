"""The metrics: each is there under its name, with its unit, and nothing in them is secret."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from remuda.coordinator.monitoring.snapshot import (
    LOOP_LIMIT_S,
    Family,
    RunMeasures,
    Sample,
    Snapshot,
    exposition_text,
    families,
    health,
)
from remuda.tests.client.statuses import status
from remuda.tests.coordinator.monitoring.exposition_reader import Read, read
from remuda.tests.coordinator.monitoring.snapshots import RUN, SNAPSHOT


def metrics(snapshot: Snapshot | None, now_s: float = 100.25) -> dict[str, Read]:
    return read(exposition_text(families(snapshot, now_s)))


def test_counters_of_a_run_are_named_by_run_and_experiment() -> None:
    found = metrics(SNAPSHOT)
    labels = {"run": "cartpole_dqn", "experiment": RUN.experiment}
    assert found["remuda_env_steps_total"].kind == "counter"
    assert found["remuda_env_steps_total"].value(**labels) == 12_345
    assert found["remuda_train_iters_total"].value(**labels) == 678
    assert found["remuda_episodes_total"].value(**labels) == 90
    assert found["remuda_policy_version"].kind == "gauge"
    assert found["remuda_best_return"].value(**labels) == 200.0
    assert "remuda_last_return" not in found, "what is not known yet is not shown as a number"


def test_the_coordinator_and_its_herd() -> None:
    found = metrics(SNAPSHOT)
    assert found["remuda_up"].value() == 1
    assert found["remuda_info"].value(version="0.1.0", protocol="7") == 1
    assert found["remuda_snapshot_age_seconds"].value() == 0.25
    assert found["remuda_loop_turns_total"].value() == 4_000
    assert found["remuda_resident_memory_bytes"].value() == 50 << 20
    assert found["remuda_journal_lag_seconds"].value() == 0.5
    assert found["remuda_workers"].value(role="collector", state="busy") == 2
    assert found["remuda_refusals_total"].value(reason="unknown_key") == 5
    assert found["remuda_refusals_total"].value(reason="forbidden") == 0
    assert found["remuda_malformed_messages_total"].value() == 2


def test_before_the_first_snapshot_there_is_one_metric() -> None:
    assert list(metrics(None)) == ["remuda_up"]
    assert metrics(None)["remuda_up"].value() == 0


def test_names_have_units_and_counters_end_in_total() -> None:
    for name, family in metrics(SNAPSHOT).items():
        assert name.startswith("remuda_")
        assert (family.kind == "counter") == name.endswith("_total"), name
        assert family.help


def test_a_run_s_path_and_what_people_wrote_do_not_leave_the_loop() -> None:
    shown = status(run_dir="/home/someone/secret", reason="a reason", waiting_for="a wish")
    assert not {"/home/someone/secret", "a reason", "a wish"} & set(map(str, _values(RunMeasures.of(shown))))


def _values(measures: RunMeasures) -> list[object]:
    return [getattr(measures, name) for name in measures.__struct_fields__]


def test_the_format_by_hand() -> None:
    steps = Family("steps_total", "counter", "Steps.", (Sample(3, {"run": "a"}), Sample(4.5, {"run": "b", "x": "1"})))
    assert exposition_text([steps, Family.single("up", "gauge", "Up.", 1)]) == (
        "# HELP steps_total Steps.\n"
        "# TYPE steps_total counter\n"
        'steps_total{run="a"} 3\n'
        'steps_total{run="b",x="1"} 4.5\n'
        "# HELP up Up.\n"
        "# TYPE up gauge\n"
        "up 1\n"
    )


@given(st.text(), st.text())
def test_any_text_comes_back_as_it_was(help: str, label: str) -> None:
    (family,) = read(exposition_text([Family("up", "gauge", help, (Sample(1, {"run": label}),))])).values()
    assert family.help == help
    assert family.value(run=label) == 1


NOW_S = SNAPSHOT.measured_s


@pytest.mark.parametrize("age_s", [-0.1, 0.0, 1.0, LOOP_LIMIT_S])
def test_a_loop_that_turns_is_well(age_s: float) -> None:
    found = health(SNAPSHOT, NOW_S + age_s)
    assert found.is_well
    assert found.loop_age_s == max(age_s, 0.0)


def test_a_loop_that_has_not_turned_for_too_long_is_stalled() -> None:
    found = health(SNAPSHOT, NOW_S + LOOP_LIMIT_S + 2.5)
    assert found.status == "stalled"
    assert found.reason == "the coordinator's loop has not turned for 7.5 s; 5 s are allowed"


def test_a_loop_that_stalls_while_it_drains_is_stalled() -> None:
    assert health(replace(SNAPSHOT, draining=True), NOW_S + 60.0).status == "stalled"
