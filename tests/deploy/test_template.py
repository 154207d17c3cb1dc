"""Templates have a place for each value, and a value for each place."""

from __future__ import annotations

import pytest

from remuda.deploy.slurm.script import filled

VALUES = {"what": "a horse", "options": "#SBATCH -x", "opening": "", "setup": "", "command": "echo $PATH a@b @{what}"}


def test_values_are_put_in_as_they_are() -> None:
    text = filled("slurm_job.sh", **VALUES)
    assert text.startswith("#!/bin/bash\n")
    assert text.endswith("\nexec echo $PATH a@b @{what}\n"), "what is in a value is not replaced"


def test_a_value_too_few_or_too_many_is_a_mistake() -> None:
    with pytest.raises(KeyError, match="setup"):
        filled("slurm_job.sh", what="", options="", opening="", command="")
    with pytest.raises(ValueError, match=r"slurm_job\.sh has no place for moon"):
        filled("slurm_job.sh", **VALUES, moon="")
