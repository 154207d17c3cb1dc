"""What the tests of configs share: a small valid file and random valid configs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from remuda.config.plain import looks_secret
from remuda.config.schema import ExperimentConfig
from remuda.config.section import LARGEST_CAPACITY, LARGEST_COUNT, LARGEST_FLOAT

SMALL = "name: small\nenv: {id: CartPole-v1}\n"


def write(folder: Path, text: str, name: str = "c.yaml") -> Path:
    """Write a config file and return its path."""
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


_counts = st.integers(1, LARGEST_COUNT)
_rows = st.integers(1, 100_000)
_units = st.lists(st.integers(1, 4_096), min_size=1, max_size=4)
_positive = st.floats(min_value=0, max_value=LARGEST_FLOAT, exclude_min=True)
_fractions = st.floats(0, 1)
_discounts = st.floats(0, 1, exclude_min=True)
_finite = st.floats(allow_nan=False, allow_infinity=False)
_texts = st.text(st.characters(codec="utf-8"), max_size=20)
_keys = _texts.filter(lambda key: not looks_secret(key))  # what is secret is masked in copies, which then are not run
_json = st.recursive(
    st.none() | st.booleans() | st.integers() | _finite | _texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_keys, inner, max_size=3),
    max_leaves=8,
)


def _some(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=fields)


_settings: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {
        "name": st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", fullmatch=True),
        "env": st.fixed_dictionaries(
            {"id": _texts},
            optional={
                "kwargs": st.dictionaries(_keys, _json, max_size=3),
                "num_envs": st.integers(1, 10_000),
                "vectorization": st.sampled_from(["auto", "native", "sync", "async"]),
                "max_episode_steps": st.none() | _counts,
            },
        ),
    },
    optional={
        "seed": st.integers(0, LARGEST_COUNT),
        "policy": _some(hidden=_units, dueling=st.booleans(), discount=_discounts)
        | st.fixed_dictionaries(
            {"type": st.just("ppo")}, optional={"target_kl": st.none() | _positive, "gae_lambda": _fractions}
        )
        | st.fixed_dictionaries({"type": st.just("rainbow")}, optional={"v_max": _positive, "noisy": st.booleans()})
        | st.fixed_dictionaries({"type": st.just("impala")}, optional={"rho_clip": _positive, "hidden": st.just([])})
        | st.fixed_dictionaries(
            {"type": st.just("muzero")}, optional={"reanalyze_ratio": _fractions, "players": st.sampled_from([1, 2])}
        )
        | st.fixed_dictionaries(
            {"type": st.just("sac")}, optional={"temperature": st.none() | _positive, "target_share": _fractions}
        )
        | st.fixed_dictionaries({"type": st.just("td3")}, optional={"policy_delay": st.integers(1, 9)}),
        "learner": _some(
            batch_size=st.integers(1, 100_000),
            learning_rate=_positive | st.just([[0, 0.5], [10, 0.25]]),
            max_grad_norm=st.none() | _positive,
            device=_texts,
        ),
        "buffer": _some(
            capacity=st.integers(20_000, LARGEST_CAPACITY),
            priority_exponent=_fractions,
            samples_per_insert=st.none() | st.floats(1e-6, 1e6),
        ),
        "stop": _some(stop_value=st.none() | _finite, max_wall_s=st.none() | _positive),
        "source_dir": _texts.filter(lambda text: "\0" not in text).map(lambda text: str(Path(f"/{text}"))),
    },
)

configs = _settings.map(ExperimentConfig.model_validate)
"""Random valid configs, strange text and the largest and smallest numbers included."""
