"""Settings that somebody gave and that have no effect are told with the reason."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from remuda.config.algorithms.registry import BUILT_IN
from remuda.config.errors import ConfigError
from remuda.config.explain import unused_settings
from remuda.config.load import OTHER_WAYS, load_config, load_settings
from remuda.tests.config.files import SMALL, write

EXAMPLES = sorted((Path(__file__).resolve().parents[2] / "examples").glob("*.yaml"))
ONCE = "ppo has no replay, and learns from learner.segments_per_update segments at once"


def lines(**settings: Any) -> list[str]:
    return unused_settings(load_settings({"name": "a", "env": {"id": "CartPole-v1"}, **settings}, folder=Path()).config)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        (
            {"policy": {"type": "ppo"}, "learner": {"batch_size": 256}},
            f"learner.batch_size is 256 and has no effect: {ONCE}",
        ),
        (
            {"policy": {"type": "impala", "recurrent_units": 9}},
            "policy.recurrent_units is 9 and has no effect: policy.recurrent is null",
        ),
        ({"buffer": {"max_policy_lag": 4}}, "buffer.max_policy_lag is 4 and has no effect: dqn learns from a replay"),
        (
            {"buffer": {"prioritized": False, "priority_exponent": 0.9}},
            "buffer.priority_exponent is 0.9 and has no effect: buffer.prioritized is false",
        ),
        (
            {"policy": {"type": "rainbow", "epsilon_end": 0.0}},
            "policy.epsilon_end is 0.0 and has no effect: policy.noisy explores instead, unless policy.noisy_epsilon "
            "is true",
        ),
        (
            {"policy": {"type": "rainbow", "munchausen_share": 0.9, "double": False}},
            "policy.double is false and has no effect: policy.munchausen_share is set",
        ),
        (
            {"policy": {"type": "rainbow", "distribution": "quantile", "v_max": 500}},
            "policy.v_max is 500.0 and has no effect: policy.distribution is quantile, which needs no bounds",
        ),
        (
            {"policy": {"type": "sac", "temperature": 0.2, "target_entropy": -1}},
            "policy.target_entropy is -1.0 and has no effect: policy.temperature is given, so none is learned",
        ),
        (
            {"policy": {"type": "crossq", "normalization": "hyperspherical", "normalization_share": 0.1}},
            "policy.normalization_share is 0.1 and has no effect: policy.normalization is hyperspherical",
        ),
        (
            {"policy": {"type": "muzero", "gumbel": True, "temperature_end": 0}},
            "policy.temperature_end is 0.0 and has no effect: policy.gumbel is true",
        ),
        (
            {"policy": {"type": "muzero", "consistency_coefficient": 0, "projection_units": 8}},
            "policy.projection_units is 8 and has no effect: policy.consistency_coefficient is 0",
        ),
    ],
)
def test_it_is_told_what_has_no_effect(settings: dict[str, Any], told: str) -> None:
    assert lines(**settings) == [told]


@pytest.mark.parametrize(
    "settings",
    [
        {"policy": {"type": "ppo", "recurrent": "gru", "recurrent_units": 9}, "learner": {"segments_per_update": 4}},
        {"policy": {"type": "rainbow", "noisy_epsilon": True, "epsilon_end": 0.0, "v_max": 500}},
        {"policy": {"type": "sac", "target_entropy_share": 0.3, "initial_temperature": 0.1}},
        {"policy": {"type": "td3"}, "buffer": {"prioritized": True, "priority_exponent": 0.9}},
        {"policy": {"type": "ppo"}, "learner": {"batch_size": 64}},  # the default, as the config.json of a run has it
    ],
)
def test_what_has_an_effect_is_not_told(settings: dict[str, Any]) -> None:
    assert lines(**settings) == []


def test_several_policies_share_what_only_one_of_them_reads() -> None:
    two = {"hunter": {"agents": ["a"]}, "hunted": {"agents": ["b"], "policy": {"type": "ppo"}}}
    env = {"kind": "pettingzoo", "id": "pettingzoo.butterfly.cooperative_pong_v6"}
    assert lines(env=env, policies=two, learner={"batch_size": 256}) == []


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_every_setting_of_the_examples_has_an_effect(example: Path) -> None:
    assert unused_settings(load_config(example).config) == []


BOMB = "a: &a [x, x, x, x, x, x, x, x]\n" + "".join(
    f"{new}: &{new} [{', '.join([f'*{old}'] * 8)}]\n" for old, new in zip("abcdefgh", "bcdefghi", strict=True)
)


def problem(path: Path) -> str:
    """The text of the error, after the path."""
    with pytest.raises(ConfigError) as caught:
        load_config(path)
    text = str(caught.value)
    assert text.startswith(str(path))
    return text.removeprefix(str(path))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ": the file is empty; a config needs at least `name` and `env`"),
        ("- a\n", ":1: the file holds a list where a mapping of settings is needed (name: …, env: …)"),
        ("name: a\nname: b\n", ":2: name: given twice (first on line 1)"),
        ("env:\n  id: a\n  'id': b\n", ":3: env.id: given twice (first on line 2)"),
        ("name: !!python/object/apply:os.system [ls]\n", ":1: a tag (!…) is not accepted; write the plain value"),
        (BOMB, ":1: &a: anchors and aliases are not accepted; write it out"),
        ("name: *x\n", ":1: *x: anchors and aliases are not accepted; write it out"),
        ("? [a]\n: 3\n", ":1: a key must be a plain word"),
        ("name: a\n---\nname: b\n", ":2: a second document starts here; a config is one"),
        ("name: a\n\tseed: 3\n", ":2: not valid YAML: while scanning for the next token"),
        ("name: a\0\n", ":1: not text: character #x0000"),
        (f"seed: {'9' * 5000}\n", ":1: a number of thousands of digits"),
        ('name: "\\ud800"\n', ":1: half of a character (a lone surrogate)"),
        ("[" * 100_000, ":1: nested deeper than 32 levels"),
        ("env: {kwargs: {x: [" + "1," * 30_000 + "]}}", ":1: more than 20000 values"),
        ("name: a\nenv:\n  id: E\n  kwargs: {x: .nan}\n", ":4: env.kwargs: should contain finite"),
    ],
)  # fmt: skip
def test_yaml(tmp_path: Path, text: str, expected: str) -> None:
    assert problem(write(tmp_path, text)).startswith(expected)


@pytest.mark.parametrize(
    ("section", "setting"),
    [
        ("buffer", "capacity: 10000000000000"),
        ("buffer", "samples_per_insert: 1.0e+308"),
        ("buffer", "max_policy_lag: 9000000000000000"),
        ("learner", "batch_size: 9000000000000000"),
        ("learner", "learning_rate: 1.0e+39"),
        ("policy", "hidden: [1000000000]"),
        ("policy", "convolution: [[1000000000, 3, 1]]"),
        ("env", "num_envs: 1000000000"),
        ("collector", "count: 1000000000"),
    ],
)
def test_what_no_memory_holds_is_refused_with_its_line(tmp_path: Path, section: str, setting: str) -> None:
    inner = f"id: CartPole-v1\n  {setting}" if section == "env" else setting
    text = f"name: small\n{section}:\n  {inner}\n" + ("" if section == "env" else "env: {id: CartPole-v1}\n")
    found = problem(write(tmp_path, text))
    assert found.startswith(f":{4 if section == 'env' else 3}: {section}.{setting.partition(':')[0]}"), found
    assert "should be" in found, found


@pytest.mark.parametrize(
    ("text", "line", "names"),
    [
        ("learner: {batch_size: 100000, prefetch_batches: 100}\n", ":3: learner", "batch_size (100000)"),
        ("policy: {type: ppo, horizon_steps: 100000}\ncollector: {count: 1000}\n", ": ", "policy.horizon_steps"),
        ("policy: {type: impala}\nbuffer: {max_policy_lag: 10000}\ncollector: {count: 100}\n", ": ", "max_policy_lag"),
    ],
)
def test_products_that_no_memory_holds_are_refused(tmp_path: Path, text: str, line: str, names: str) -> None:
    found = problem(write(tmp_path, SMALL + text))
    assert found.startswith(line)
    assert names in found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (" \n", ": the file is empty"),
        ('{\n"name": "a",\n}', ":3: not valid JSON: "),
        ('{"name": "a",\n "env": {"id": "E",\n "id": "F"}}', ":3: env.id: given twice (first on line 2)"),
        ('{"name": "a", "env": {"id": "E"},\n "stop": {"max_wall_s": NaN}}', ":2: stop.max_wall_s: should be a finite"),
        ('{"name": "a",\n "env": {"id": "E", "kwargs": {"x": [1, {"y": 1e999}]}}}', ":2: env.kwargs: should contain"),
        ('{"name": "\\ud800", "env": {"id": "E"}}', ":1: name: should be a valid string"),
        ("[" * 100_000, ": not a config: nested too deep"),
        ('{"a": ' + "[" * 40 + "]" * 40 + "}", ":1: nested deeper than 32 levels"),
        ('{"seed": ' + "9" * 5000 + "}", ": not a config: nested too deep, or a number of thousands of digits"),
    ],
)  # fmt: skip
def test_json(tmp_path: Path, text: str, expected: str) -> None:
    assert problem(write(tmp_path, text, "c.json")).startswith(expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("# nothing", ": the file is empty"),
        ("exp_config = 3", ":1: the file holds a single value"),
        ("import os\nexp_config = {}", ":1: only one `exp_config = {…}` is accepted; nothing"),
        ("exp_config = {}\nprint(1)", ":2: only one `exp_config = {…}`"),
        ("other = {}", ":1: only one `exp_config = {…}`"),
        ("exp_config = {\n'name': open('x')}", ":2: name: not a plain value"),
        ("exp_config = {\n'seed': 1 + 1}", ":2: seed: not a plain value"),
        ("exp_config = {'seed': -True}", ":1: seed: not a plain value"),
        ("exp_config = {'policy': {'hidden': [1, {2}]}}", ":1: policy.hidden[1]: not a plain value"),
        ("exp_config = {\n3: 1}", ":2: a key must be a plain string"),
        ("exp_config = {\n'name': f'{1}'}", ":2: an f-string is not a plain value"),
        ("# f'\nexp_config = {'name': \"f'\", 'x': Rf'{1}'}", ":2: an f-string is not a plain value"),
        ("exp_config = {'name': 'a',\n 'name': 'b'}", ":2: name: given twice (first on line 1)"),
        ("exp_config = " + "(" * 500, ":1: not valid Python: too many nested parentheses"),
        ("exp_config = " + "-" * 100_000 + "1", ": not a config: nested too deep"),
        ("exp_config = " + "[" * 40 + "]" * 40, ":1: nested deeper than 32 levels"),
        ("exp_config = {'name': 'a', 'env': {'id': 'E'},\n 'seed': 1e999}", ":2: seed: should be a finite number"),
    ],
)  # fmt: skip
def test_python(tmp_path: Path, text: str, expected: str) -> None:
    assert problem(write(tmp_path, text, "c.py")).startswith(expected)


def test_python_is_never_executed(tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    for text in (f"exp_config = open({str(canary)!r}, 'w')", f"exp_config = {{'name': open({str(canary)!r}, 'w')}}"):
        problem(write(tmp_path, text, "c.py"))
    assert not canary.exists()


class TestNotAFile:
    def test_missing(self, tmp_path: Path) -> None:
        assert problem(tmp_path / "c.yaml") == f": cannot be read: No such file or directory; {OTHER_WAYS}"
        assert problem(write(tmp_path, SMALL, "c.toml")).startswith(": not a config; expected a .yaml, .json or")

    def test_folder_names_the_config_in_it(self, tmp_path: Path) -> None:
        assert problem(tmp_path) == ": is a folder; name the config file in it"
        run = write(tmp_path, "{}", "config.json")
        assert problem(tmp_path) == f": is a folder; name the config file in it, as in {run}"

    def test_pipe_does_not_block(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "c.yaml")
        assert problem(tmp_path / "c.yaml") == ": not a regular file"

    def test_binary(self, tmp_path: Path) -> None:
        path = tmp_path / "c.yaml"
        path.write_bytes(b"name: a\nseed: \xff\xfe\n")
        assert problem(path) == ":2: not UTF-8 text (byte 0xff)"


class TestErrors:
    def test_are_reported_together_in_the_files_order(self, tmp_path: Path) -> None:
        path = write(
            tmp_path,
            """\
nam: cartpole
seed: true
env: {id: CartPole-v1, num_env: 8}
batch_size: 3
policy: {type: dqn, hidden: [128, x, -64], dueling: maybe, n_step: 3.5, discount: .nan}
learner:
  lr: 1e-3
  batch_size: -1
stop: null
quux: 1
""",
        )
        expected = f"""\
{path}: name: is required
{path}:1: nam: no such setting; did you mean name?
{path}:2: seed: should be a number, not true
{path}:3: env.num_env: no such setting; did you mean env.num_envs?
{path}:4: batch_size: no such setting; did you mean learner.batch_size?
{path}:5: policy.hidden[1]: should be a valid integer, not "x"
{path}:5: policy.hidden[2]: should be greater than 0, not -64
{path}:5: policy.discount: should be a finite number, not NaN
{path}:5: policy.n_step: should be a valid integer, not 3.5
{path}:5: policy.dueling: should be a valid boolean, not "maybe"
{path}:7: learner.lr: no such setting; did you mean learner.learning_rate?
{path}:8: learner.batch_size: should be greater than 0, not -1
{path}:9: stop: should be a mapping of settings, not null
{path}:10: quux: no such setting; valid here: name, seed, env, policy, policies, self_play, learner, collector, \
evaluator, reanalyzer, inference, buffer, checkpoint, storage, stop, log, callbacks, limits, launch, affinity, \
project, preemptible, source_dir"""
        with pytest.raises(ConfigError) as caught:
            load_config(path)
        assert str(caught.value) == expected

    @pytest.mark.parametrize(
        ("policy", "expected"),
        [
            (
                "{type: ppoo}",
                f'policy.type: should be one of {", ".join(BUILT_IN)}, or module:Class, not "ppoo"; did you mean ppo?',
            ),
            ("{type: [ppo]}", f'policy.type: should be one of {", ".join(BUILT_IN)}, or module:Class, not ["ppo"]'),
            ("{hidden: []}", "policy.hidden: should name at least one hidden layer"),
            ("[ppo]", 'policy: should be a mapping of settings, not ["ppo"]'),
            ("{type: ppo, hidden: [x]}", 'policy.hidden[0]: should be a valid integer, not "x"'),
            ("{type: ppo, clip_range: 0.1}", "policy.clip_range: no such setting of ppo; did you mean policy.clip?"),
            ("{type: muzero, td_step: 5}", "policy.td_step: no such setting of muzero; "),
            ("{type: td3, normalization: batch}", "policy.normalization: should be 'hyperspherical', not \"batch\""),
            (
                "{type: sac, normalization: hyperspherical, hidden: [64, 32]}",
                "policy: normalization hyperspherical makes a residual block of each of hidden: at least one",
            ),
            (
                "{type: crossq, normalization: hyperspherical, actor_hidden: []}",
                "policy: normalization hyperspherical makes a residual block of each of actor_hidden: at least one",
            ),
            (
                "{type: sac, normalization: hyperspherical, network: 'mine:net'}",
                "policy: network is the whole network, in place of normalization, too: leave one of them out",
            ),
        ],
    )
    def test_each_algorithm_has_its_own_settings(self, tmp_path: Path, policy: str, expected: str) -> None:
        assert problem(write(tmp_path, f"{SMALL}policy: {policy}\n")).startswith(f":3: {expected}")

    def test_a_setting_of_another_algorithm_is_not_suggested(self, tmp_path: Path) -> None:
        text = problem(write(tmp_path, f"{SMALL}policy: {{type: dqn, epochs: 3}}\n"))
        assert text.startswith(
            ":3: policy.epochs: no such setting of dqn; valid here: type, encoder, encoder_kwargs, convolution"
        )

    def test_an_override_is_blamed_in_any_algorithm(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError) as caught:
            load_config(write(tmp_path, f"{SMALL}policy: {{type: ppo}}\n"), overrides=["policy.clip=-1"])
        assert str(caught.value) == "--set policy.clip=-1: policy.clip: should be greater than 0, not -1"

    def test_a_buffer_that_never_fills_is_refused(self, tmp_path: Path) -> None:
        path = write(tmp_path, SMALL + "buffer: {capacity: 10}\n")
        told = "buffer.min_rows (1000) is more than buffer.capacity (10): training would never start"
        assert problem(path) == f": {told}; lower buffer.min_rows"

    def test_mistakes_of_all_kinds_are_reported_together(self, tmp_path: Path) -> None:
        """But no mistake that another may have caused."""
        path = write(tmp_path, SMALL + "learner: {batch_size: many, ranks: 2, threads: 3}\n")
        with pytest.raises(ConfigError) as caught:
            load_config(path, overrides=["policy.gamm=1", "buffer", "buffer.capacity=10"])
        assert [problem.partition("; ")[0] for problem in caught.value.problems] == [
            f'{path}:3: learner.batch_size: should be a valid integer, not "many"',
            "--set policy.gamm=1: policy.gamm: no such setting of dqn",
            f"{path}: buffer.min_rows (1000) is more than buffer.capacity (10): training would never start",
            "--set buffer: write it as key=value, as in --set learner.batch_size=128",
        ]
        assert problem(write(tmp_path, SMALL + "buffer: {capacity: no, min_rows: 5000000}\n")).count("buffer.") == 1

    @pytest.mark.parametrize("value", ["true", "9007199254740993", "-1", "[1]", "null"])
    def test_counts_are_positive_integers_that_messages_can_carry(self, tmp_path: Path, value: str) -> None:
        path = write(tmp_path, f"{SMALL}learner:\n  batch_size: {value}\n")
        assert problem(path).startswith(":4: learner.batch_size: should be ")

    def test_counts_beyond_all_measure(self, tmp_path: Path) -> None:
        path = write(tmp_path, f"{SMALL}learner:\n  batch_size: 1e300\n")
        assert problem(path) == ":4: learner.batch_size: is far too large: 1e+300"

    @pytest.mark.parametrize("value", [".nan", "-.inf", "true", "0", "1e999"])
    def test_rates_are_positive_and_finite(self, tmp_path: Path, value: str) -> None:
        path = write(tmp_path, f"{SMALL}learner:\n  learning_rate: {value}\n")
        assert problem(path).startswith(":4: learner.learning_rate: should be ")

    @pytest.mark.parametrize("name", ["", "../a", "a b", "a" * 101])
    def test_names_can_be_folders(self, tmp_path: Path, name: str) -> None:
        path = write(tmp_path, f'name: "{name}"\nenv: {{id: E}}\n')
        assert problem(path).startswith(":1: name: ")


@pytest.mark.parametrize(
    ("suffix", "text"),
    [
        *((suffix, "[" * 250_000) for suffix in (".yaml", ".json", ".py")),
        (".yaml", "#\n" * 125_000),
        (".yaml", 'a: "' + "\\n" * 125_000 + '"'),
        (".yaml", "".join(f"k{number}: 1\n" for number in range(25_000))),
        (".yaml", "x" * 10_000_000),
        (".py", "exp_config = f'" + "{a:{b}}" * 35_000 + "'"),
        (".py", "exp_config = '''" + "\n\\'" * 80_000),
    ],
    ids=["yaml", "json", "py", "comments", "escapes", "keys", "10 MB", "formats", "open string"],
)
@pytest.mark.timeout(100)  # each takes a third of a second; without the bounds some would take minutes
def test_the_slowest_files_are_refused_while_a_user_waits(tmp_path: Path, suffix: str, text: str) -> None:
    path = write(tmp_path, text, f"c{suffix}")
    with pytest.raises(ConfigError):
        load_config(path)
