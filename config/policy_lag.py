"""The default of `buffer.max_policy_lag`, which depends on the algorithm."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

ALLOWED: Mapping[str, int] = {"impala": 4}
"""By `policy.type`: algorithms that correct for older policies, so that collectors need not wait for every update. With
all others the default is 0."""


def with_default_lag(value: object) -> object:
    """Fill in the default where a config, or one of several policies, has an algorithm with one of its own and says
    nothing. What is not a mapping is left as it is, for the validation to refuse."""
    if not isinstance(value, Mapping):
        return value
    values = dict(cast("Mapping[str, object]", value))
    policy, buffer = values.get("policy"), values.get("buffer", {})
    if isinstance(policy, Mapping) and isinstance(buffer, Mapping) and "max_policy_lag" not in buffer:
        lag = ALLOWED.get(str(cast("Mapping[str, object]", policy).get("type")))
        if lag is not None:
            values["buffer"] = {**cast("Mapping[str, object]", buffer), "max_policy_lag": lag}
    policies = values.get("policies")
    if isinstance(policies, Mapping):
        values["policies"] = {
            name: with_default_lag(one) for name, one in cast("Mapping[str, object]", policies).items()
        }
    return values
