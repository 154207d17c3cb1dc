"""The scripts of a launch on Slurm, word for word."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from remuda.config.launching import LaunchConfig, SlurmConfig
from remuda.deploy.launcher import LaunchError, LaunchRequest
from remuda.deploy.slurm.script import SlurmPlan

HEAD = """\
#!/bin/bash
# Written by `remuda launch`: coordinator and learner of horse.
#SBATCH --job-name=remuda-horse-head
#SBATCH --output="/shared/runs/.launches/horse-1/head_%j.txt"
#SBATCH --open-mode=append
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=2
#SBATCH --signal=B:USR1@120
#SBATCH --requeue

exec /venv/bin/python -P -m remuda.deploy.slurm.job head --own-dir /shared/runs/.launches/horse-1 \
--runs-dir /shared/runs --bind tcp://0.0.0.0:0 --learners 1 --coordinator-timeout 3600 --requeue --notice 110
"""

COLLECTORS = """\
#!/bin/bash
# Written by `remuda launch`: 4 collectors of horse.
#SBATCH --job-name=remuda-horse-collector
#SBATCH --output=/dev/null
#SBATCH --open-mode=append
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=8
#SBATCH --mem=4000M
#SBATCH --partition=cpu
#SBATCH --account=horses
#SBATCH --qos=low
#SBATCH --time=90
#SBATCH --signal=B:USR1@300
#SBATCH --requeue
#SBATCH --constraint=avx512

if [ -d /shared/runs/.launches/horse-1 ]; then
  exec >>/shared/runs/.launches/horse-1/collector_"$SLURM_JOB_ID".txt 2>&1
else  # this node does not see the folder of the launch
  printed=$(mktemp "${TMPDIR:-/tmp}/remuda-collector_$SLURM_JOB_ID.XXXXXXXX")
  exec >>"$printed" 2>&1
  set -- --guest "$printed"
fi
module load python
exec /venv/bin/python -P -m remuda.deploy.slurm.job collector --own-dir /shared/runs/.launches/horse-1 \
--runs-dir /shared/runs --count 4 --coordinator-timeout 60 --requeue --notice 290 "$@"
"""

EVERYTHING = SlurmConfig(
    partition="cpu",
    account="horses",
    qos="low",
    walltime_min=90,
    notice_s=300,
    workers_per_job=4,
    cores_per_worker=2,
    memory_mib_per_worker=1_000,
    learner_cores=6,
    learner_gpus=1,
    learner_memory_mib=32_000,
    port=5555,
    options=("--constraint=avx512",),
    setup=("module load python",),
)


def plan(
    slurm: SlurmConfig | None = None,
    *,
    own_dir: str = "/shared/runs/.launches/horse-1",
    coordinator_timeout_s: float = 3_600,
) -> SlurmPlan:
    settings = LaunchConfig(on="slurm", slurm=slurm or SlurmConfig(), coordinator_timeout_s=coordinator_timeout_s)
    request = LaunchRequest(Path("/shared/runs"), "horse", settings)
    return SlurmPlan(request, Path(own_dir), python="/venv/bin/python")


def test_the_script_of_coordinator_and_learner() -> None:
    assert plan().head_script(1) == HEAD


def test_the_script_of_workers_with_every_setting() -> None:
    assert plan(EVERYTHING, coordinator_timeout_s=60).worker_script("collector") == COLLECTORS


def test_what_the_head_has_of_its_own() -> None:
    settings = LaunchConfig(on="slurm", slurm=EVERYTHING)
    request = LaunchRequest(Path("/r"), "horse", settings, limits=["stuck_after_s=600"], profile=Path("/tmp/p"))
    script = SlurmPlan(request, Path("/r/x"), profile=Path("/r/x/profile"), python="python").head_script(2)
    assert {"#SBATCH --cpus-per-task=6", "#SBATCH --mem=32000M", "#SBATCH --gres=gpu:1"} <= set(script.splitlines())
    assert " --bind tcp://0.0.0.0:5555 --learners 2 --limit stuck_after_s=600 " in script
    assert script.endswith(" --profile /r/x/profile\n")


@pytest.mark.parametrize("sees", [True, False])
def test_a_workers_script_prints_where_it_can_and_tells_the_job_what_its_node_sees(tmp_path: Path, sees: bool) -> None:
    """Run by a real shell, in the place of Slurm."""
    own_dir, elsewhere, python = tmp_path / "own dir", tmp_path / "tmp", tmp_path / "python"
    elsewhere.mkdir()
    if sees:
        own_dir.mkdir()
    python.write_text('#!/bin/sh\nfor each in "$@"; do echo "<$each>"; done\n')
    python.chmod(0o755)
    request = LaunchRequest(tmp_path, "horse", LaunchConfig(on="slurm"))
    script = SlurmPlan(request, own_dir, python=str(python)).worker_script("collector")
    environment = {**os.environ, "SLURM_JOB_ID": "17", "TMPDIR": str(elsewhere)}
    subprocess.run(["bash", "-c", script], env=environment, check=True)
    [printed] = [*own_dir.glob("*"), *elsewhere.iterdir()]
    said = printed.read_text().splitlines()
    if sees:
        assert printed == own_dir / "collector_17.txt"
        assert "<--guest>" not in said
    else:
        assert printed.name.startswith("remuda-collector_17.")
        assert said[-2:] == ["<--guest>", f"<{printed}>"]


def test_folders_are_quoted_and_percent_signs_are_no_patterns_of_slurm() -> None:
    made = plan(own_dir="/my runs/50%/x")
    assert '#SBATCH --output="/my runs/50%%/x/head_%j.txt"\n' in made.head_script(1)
    script = made.worker_script("evaluator")
    assert (
        "if [ -d '/my runs/50%/x' ]; then\n  exec >>'/my runs/50%/x/evaluator_'\"$SLURM_JOB_ID\".txt 2>&1\n" in script
    )
    assert "--own-dir '/my runs/50%/x' " in script


@pytest.mark.parametrize("folder", ['/a"b', "/a\nb", "/a\\b"])
def test_a_folder_that_no_script_can_name_is_refused(folder: str) -> None:
    with pytest.raises(LaunchError, match="choose another --runs-dir"):
        plan(own_dir=folder)


@pytest.mark.parametrize(
    "settings",
    [
        {"partition": "cpu\n#SBATCH --wrap=evil"},
        {"account": "two words"},
        {"setup": ["one\ntwo"]},
        {"options": ["constraint=avx512"]},
    ],
)
def test_settings_that_would_write_other_lines_are_refused(settings: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="validation error"):
        SlurmConfig.model_validate(settings)
