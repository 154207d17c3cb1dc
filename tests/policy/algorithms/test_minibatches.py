"""Minibatches have every row once, and sizes that differ by at most one, for any split among ranks."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from remuda.policy.network_learner import shuffled


@given(parts=st.lists(st.integers(0, 9), min_size=1, max_size=4).filter(any), data=st.data())
def test_every_row_is_in_one_minibatch(parts: list[int], data: st.DataObject) -> None:
    whole = sum(parts)
    shares = data.draw(st.integers(1, whole))
    firsts = [0, *itertools.accumulate(parts)]
    dealt = [
        shuffled(np.random.default_rng(5), whole=whole, first=first, own=own, shares=shares)
        for first, own in zip(firsts, parts, strict=False)
    ]
    for own, (order, sizes) in zip(parts, dealt, strict=True):
        assert sorted(order.tolist()) == list(range(own))
        assert (len(sizes), sum(sizes)) == (shares, own)
    whole_sizes = np.sum([sizes for _, sizes in dealt], axis=0)
    assert whole_sizes.tolist() == [len(share) for share in np.array_split(np.arange(whole), shares)]
