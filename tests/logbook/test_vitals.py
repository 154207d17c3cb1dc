"""The table of where the time went, its curves, and their place in the logs."""

from __future__ import annotations

from pathlib import Path

from remuda.logbook.reports import VitalsReport
from remuda.logbook.role_logbooks import serial_logbook
from remuda.logbook.series import Usage
from remuda.storage.run_folder import RunFolder
from remuda.tests.logbook.event_reader import curves

LEARNER = Usage("learner", 1, 0.981, 221.4, 0.75, 0.0, 0.1875, 0.0625, 0.0, 0.0)
COLLECTOR = Usage("collector", 2, 1.2, 300.0, 0.25, 0.5, 0.0, 0.0, 0.25, 0.0)
REPORT = VitalsReport(train_iter=40, env_step=900, wall_s=61.5, past_s=60.04, roles=[LEARNER, COLLECTOR])


def test_the_table() -> None:
    assert REPORT.text().splitlines()[:7] == [
        "Where the past 60 seconds went:",
        "+-------------+-----------+-------------+",
        "| role        | learner   | collector   |",
        "+=============+===========+=============+",
        "| processes   | 1         | 2           |",
        "+-------------+-----------+-------------+",
        "| cpu_cores   | 0.98      | 1.20        |",
    ]
    shown = [line for line in REPORT.text().splitlines() if line.startswith("| ")]
    assert shown[3:] == [
        "| rss_mib     | 221       | 300         |",
        "| work        | 75.0 %    | 25.0 %      |",
        "| env         | 0.0 %     | 50.0 %      |",
        "| wait_data   | 18.8 %    | 0.0 %       |",
        "| wait_policy | 6.2 %     | 0.0 %       |",
        "| wait_credit | 0.0 %     | 25.0 %      |",
        "| wait_other  | 0.0 %     | 0.0 %       |",
    ]


def test_fields_name_the_role() -> None:
    fields = REPORT.fields()
    assert len(fields) == 18
    assert (fields["learner_cpu_cores"], fields["collector_env"], fields["collector_processes"]) == (0.981, 0.5, 2)


def test_curves_are_over_seconds(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    for name in ("log/buffer", "log/collector", "log/evaluator", "log/learner", "log/serial"):
        (tmp_path / name).mkdir(parents=True)
    with serial_logbook(folder, ("Loss",)) as book:
        book.emit(REPORT)
    assert curves(folder.serial_tb)["vitals_sec/learner_wait_data"] == [(61, 0.1875)]
    assert "Where the past 60 seconds went:" in folder.serial_evaluator_log.read_text()
