"""Missing devices give an error of one sentence."""

from __future__ import annotations

import pytest
import torch

from remuda.policy.networks.tensors import DeviceError, usable


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("Torch not compiled with CUDA enabled", "Torch not compiled with CUDA enabled"),
        (
            "Found no NVIDIA driver on your system. Please check that you have one.",
            "Found no NVIDIA driver on your system",
        ),
        (
            "Could not run 'aten::empty' with arguments from the 'MPS' backend. This could be because the operator "
            "doesn't exist for this backend. 'aten::empty' is only available for these backends: [CPU, Meta].\nCPU: "
            "registered at RegisterCPU.cpp:31188 [kernel]",
            "Could not run 'aten::empty' with arguments from the 'MPS' backend",
        ),
        ("Expected one of cpu, cuda, … device type at start of device string: mps", "there is no device of this name"),
    ],
)
def test_what_torch_says_of_a_device_is_told_in_short(monkeypatch: pytest.MonkeyPatch, said: str, why: str) -> None:
    def empty(size: int, device: str) -> torch.Tensor:
        raise RuntimeError(said)

    monkeypatch.setattr(torch, "empty", empty)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(DeviceError) as caught:
        usable("mps", setting="learner.device")
    way_out = "set it to cpu (a GPU is cuda; torch finds none)"
    assert str(caught.value) == f"learner.device = 'mps' cannot be used: {why}; {way_out}"
