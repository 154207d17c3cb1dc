"""The metrics: each is there under its name, with its unit, and nothing in them is secret."""

from __future__ import annotations

from typing import get_args

from msgspec.structs import replace

from remuda.coordinator.monitoring.exposition import text
from remuda.coordinator.monitoring.metrics import families
from remuda.coordinator.monitoring.snapshot import RunMeasures, Snapshot
from remuda.tests.client.statuses import status
from remuda.tests.coordinator.monitoring.exposition_reader import Read, read
from remuda.tests.coordinator.monitoring.snapshots import RUN, SNAPSHOT
from remuda.wire.messages import ExperimentState


def metrics(snapshot: Snapshot | None, now_s: float = 100.25) -> dict[str, Read]:
    return read(text(families(snapshot, now_s)))


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


def test_two_runs_of_one_name_are_two_samples() -> None:
    other = replace(RUN, experiment="bbbbbbbb-0000-4000-8000-000000000002", env_step=1)
    found = metrics(replace(SNAPSHOT, runs=[RUN, other]))
    assert sorted(found["remuda_env_steps_total"].samples.values()) == [1, 12_345]


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


def test_the_queue_is_counted_and_every_state_is_shown() -> None:
    queued = replace(RUN, experiment="bbbbbbbb-0000-4000-8000-000000000002", state="queued")
    found = metrics(replace(SNAPSHOT, runs=[RUN, queued]))["remuda_experiments"]
    assert found.value(state="queued") == 1
    assert len(found.samples) == len(get_args(ExperimentState))


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
