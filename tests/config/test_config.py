"""The configuration: overrides and checks."""

import dataclasses
import json
import math
import re
from typing import get_type_hints

import numpy as np
import pytest

from tf_transformer.api.train import configure
from tf_transformer.base.errors import UserError
from tf_transformer.config import (
    SAMPLING,
    SETTINGS,
    Config,
    DataConfig,
    DecodingConfig,
    ModelConfig,
    SamplingConfig,
    TrainingConfig,
)
from tf_transformer.config.config import SearchOptions, read_settings_file
from tf_transformer.config.presets import preset
from tf_transformer.config.settings import Setting, parse_assignments
from tf_transformer.models.transformer import Transformer


def overridden(*assignments: str) -> Config:
    return Config().replace(parse_assignments(assignments, SETTINGS))


@pytest.mark.parametrize(
    ("assignment", "expected"),
    [
        ("model.d_model=256", 256),
        ("training.steps=1e5", 100_000),
        ("model.dropout=0.3", 0.3),
        ("model.dropout=0", 0.0),
        ("training.epsilon=1e-9", 1e-9),
        ("model.norm_first=true", True),
        ("model.tie_embeddings=False", False),
        ("model.key_dim=16", 16),
        ("model.key_dim=None", None),
        ("model.key_dim=null", None),
        ("model.positions=learned", "learned"),
        ("data.source=5", "5"),
        ("data.tokenizer=a=b.model", "a=b.model"),
        ("data.train=one", ("one",)),
        ("data.train=one,two", ("one", "two")),
        ("data.train=", ()),
        (" decoding.alpha = 0.3 ", 0.3),
    ],
)
def test_override_parses_a_value_into_the_type_of_its_field(assignment, expected):
    value = overridden(assignment).flat()[assignment.split("=")[0].strip()]
    assert value == expected
    assert type(value) is type(expected)


def test_the_last_override_of_a_field_wins_and_nothing_else_changes():
    config = overridden("model.d_ff=8", "model.d_ff=16")
    assert config.model.d_ff == 16
    assert config.replace({"model.d_ff": 2048}) == Config()


def test_overrides_that_only_make_sense_together_are_checked_together():
    config = overridden("training.average_last=20", "training.keep_last=20")
    assert config.training.average_last == 20
    assert Config().replace({"training.average_last": 20, "training.keep_last": 20}) == config
    with pytest.raises(UserError, match="keep_last"):
        overridden("training.average_last=20")


@pytest.mark.parametrize(
    ("unknown", "nearest"),
    [
        ("model.droput", "model.dropout"),
        ("dropout", "model.dropout"),
        ("training.label_smoothin", "training.label_smoothing"),
        ("beam_size", "decoding.beam_size"),
    ],
)
def test_the_error_for_an_unknown_setting_suggests_the_nearest(unknown, nearest):
    with pytest.raises(UserError, match=f"{unknown!r}.*{nearest!r}"):
        overridden(f"{unknown}=1")


def test_the_error_lists_all_settings_if_none_is_similar():
    with pytest.raises(UserError, match=r"model\.d_model.*decoding\.alpha"):
        overridden("zzz=1")


@pytest.mark.parametrize("assignment", ["model.dropout", "", "model"])
def test_an_override_needs_an_equals_sign(assignment):
    with pytest.raises(UserError, match="section.field=value"):
        overridden(assignment)


# fmt: off
OF_THE_WRONG_TYPE = [
    "model.d_model=wide", "model.d_model=512.5", "model.d_model=true", "model.d_model=",
    "model.d_model=null", "model.dropout=high", "model.norm_first=1", "model.key_dim=[64]",
    "training.seed={}",
]
OUT_OF_RANGE = [
    "model.num_layers=0", "model.d_ff=-1", "model.vocab_size=4",
    "model.key_dim=0", "model.value_dim=-64", "model.dropout=1", "model.dropout=-0.1",
    "model.dropout=NaN", "model.positions=unknown", "model.max_length=0",
    "model.activation=gelu", "model.norm=batch", "model.attention_window=-1",
    "model.norm_epsilon=0", "data.tokenizer_kind=char",
    "data.normalization=nfd", "data.character_coverage=0.97", "data.character_coverage=1.001",
    "data.character_coverage=NaN", "data.max_length=7", "data.max_ratio=0.5",
    "training.steps=0", "training.warmup_steps=0", "training.evaluate_every=0",
    "training.batch_tokens=0", "training.learning_rate_scale=0",
    "training.learning_rate_scale=Infinity", "training.epsilon=0", "training.beta_2=1",
    "training.label_smoothing=1", "training.clip_norm=-1",
    "training.average_last=0", "training.patience=-1", "training.precision=float16",
    "training.seed=-1", "decoding.beam_size=0", "decoding.alpha=-0.1", "decoding.alpha=1e999",
    "decoding.max_extra_length=0", "decoding.batch_tokens=0", "model.vocab_size=1e30",
    "model.key_dim=2147483648", "data.max_length=1e9", "training.steps=1e10",
    "training.clip_norm=1e39", "training.seed=4294967296", "decoding.beam_size=1001",
    "decoding.min_length=2147483648", "decoding.no_repeat_ngram=2147483648",
]
# fmt: on


@pytest.mark.parametrize("assignment", OF_THE_WRONG_TYPE + OUT_OF_RANGE)
def test_a_value_of_the_wrong_type_or_out_of_range_is_refused_by_name(assignment):
    name = assignment.split("=")[0]
    with pytest.raises(UserError, match=f"`{name}` must be .* Received: "):
        overridden(assignment)


def test_numbers_of_numpy_become_those_of_python():
    config = DecodingConfig(beam_size=np.int64(2), alpha=np.float32(0.5), max_length=7.0)
    assert config == DecodingConfig(beam_size=2, alpha=0.5, max_length=7)
    assert [type(value) for value in vars(config).values()] == [
        type(value) for value in vars(DecodingConfig()).values()
    ]
    for value in (np.int32(3), np.float64(3.0), 3):
        assert type(Setting(int).check("n_best", value)) is int


@pytest.mark.parametrize(
    ("section", "wrong"),
    [
        (ModelConfig, {"norm_first": "False"}),
        (DecodingConfig, {"beam_size": 4.5}),
        (DecodingConfig, {"beam_size": True}),
        (SamplingConfig, {"temperature": "1"}),
    ],
)
def test_a_section_refuses_values_of_another_type(section, wrong):
    ((name, value),) = wrong.items()
    with pytest.raises(UserError, match=f"{name}` must be .* Received: '?{value}"):
        section(**wrong)


@pytest.mark.parametrize("setting", ["normalization=identity", "character_coverage=0.99"])
def test_settings_of_a_new_tokenizer_are_refused_with_an_existing_one(setting):
    assert overridden(f"data.{setting}") != Config()
    expected = r"must be left out with `data.tokenizer`, which has its own. Received: "
    with pytest.raises(UserError, match=f"`data.{setting.partition('=')[0]}` {expected}"):
        overridden(f"data.{setting}", "data.tokenizer=some.model")


@pytest.mark.parametrize(("name", "allowed"), (SETTINGS | SAMPLING).items())
def test_every_number_has_bounds_and_a_default_within_them(name, allowed):
    if {int, float} & {*allowed.types}:
        assert None not in (
            allowed.bounds.low if allowed.bounds.above is None else allowed.bounds.above,
            allowed.bounds.high if allowed.bounds.below is None else allowed.bounds.below,
        )
    default = (Config().flat() | dataclasses.asdict(SamplingConfig()))[name]
    assert allowed.check(name, default) == default


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("decoding.beam_size", "an int from 1 to 1000"),
        ("model.key_dim", "an int from 1 to 65536 or None"),
        ("model.dropout", "in [0, 1)"),
        ("model.norm_epsilon", "above 0 and at most 1"),
        ("model.norm", "one of ('layer', 'rms')"),
        ("model.norm_first", "true or false"),
        ("data.train", "a list of strings"),
    ],
)
def test_an_error_says_what_a_setting_must_be(name, expected):
    with pytest.raises(
        UserError, match=rf"^`{name}` must be {re.escape(expected)}\. Received: "
    ):
        Config().replace({name: "\0"})


def test_an_even_width_is_divided_among_the_heads_unless_their_sizes_are_given():
    with pytest.raises(UserError, match="`d_model` must be even. Received: 33"):
        Transformer(20, d_model=33)
    with pytest.raises(UserError, match="num_heads=7, d_model=512"):
        ModelConfig(num_heads=7)
    with pytest.raises(UserError, match="num_heads=7, d_model=512"):
        ModelConfig(num_heads=7, key_dim=64)
    assert ModelConfig(num_heads=7, key_dim=64, value_dim=64).num_heads == 7
    with pytest.raises(UserError, match="`key_dim` must be even, if .* rotary. Received: 3"):
        ModelConfig(d_model=12, num_heads=4, positions="rotary")


def test_unusable_temperatures_and_alphas_are_refused():
    for value in (0.0, 1e-40, 1e38, math.inf, math.nan):
        with pytest.raises(UserError, match="`temperature` must be from 0.01 to 100.0. Receiv"):
            SamplingConfig(temperature=value)
    for value in (-0.1, 10.1, math.inf, math.nan):
        with pytest.raises(UserError, match="`alpha` must be from 0 to 10.0. Receiv"):
            DecodingConfig(alpha=value)


YAML = """
preset: base
model:
  dropout: 0.3
training:
  epsilon: 1e-8  # text, for YAML 1.1
  steps: 2e3
data.train: [a, b]
data:
  valid: c,d
  tokenizer: ""
"""


def test_yaml_takes_sections_dotted_names_and_values_as_for_set(tmp_path):
    (tmp_path / "a.yaml").write_text(YAML)
    assert read_settings_file(tmp_path / "a.yaml") == {
        "preset": "base",
        "model.dropout": 0.3,
        "training.epsilon": 1e-8,
        "training.steps": 2_000,
        "data.train": ("a", "b"),
        "data.valid": ("c", "d"),
        "data.tokenizer": "",
    }


def test_the_config_json_of_a_run_is_read_in_full(tmp_path):
    config = preset("multi30k").replace({"training.seed": 7})
    (tmp_path / "config.json").write_text(config.to_json())
    assert read_settings_file(tmp_path / "config.json") == config.flat()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("model: {droput: 1}", "no setting 'model.droput'. Did you mean 'model.dropout'"),
        ("batch_tokens: 9", "mean 'training.batch_tokens' or 'decoding.batch_tokens'"),
        ("model: {dropout: high}", r"`model.dropout` must be in \[0, 1\). Received: 'high'"),
        ("data: {target: no}", "`data.target` must be str. Received: False"),
        ("preset: 4", "`preset` must be str. Received: 4"),
        ("- a", r"must have sections of settings.* Received: \['a'\]"),
        ("a: [", "is not valid YAML"),
    ],
)
def test_the_error_for_an_invalid_setting_names_file_and_nearest_setting(
    tmp_path, text, expected
):
    (tmp_path / "a.yaml").write_text(text)
    with pytest.raises(UserError, match=f"a.yaml: .*{expected}"):
        read_settings_file(tmp_path / "a.yaml")


def test_the_error_for_a_damaged_or_missing_file_names_it(tmp_path):
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(UserError, match="config.json: .* not a valid config.json"):
        read_settings_file(tmp_path / "config.json")
    with pytest.raises(UserError, match="a.yaml cannot be read"):
        read_settings_file(tmp_path / "a.yaml")


def test_every_field_survives_its_file():
    config = Config(
        preset="big",
        model=ModelConfig(key_dim=16, value_dim=32, norm_first=True, dropout=0.0),
        data=DataConfig(train=("a", "ä b"), valid=("c",), source="en", target="de"),
        training=TrainingConfig(epsilon=1e-7, jit_compile=True, seed=2**31),
        decoding=DecodingConfig(alpha=1.0),
    )
    text = config.to_json()
    assert Config.from_json(text) == config
    assert "ä b" in text


def test_a_file_may_lack_settings():
    record = json.loads(preset("big").to_json())
    del record["training"]["jit_compile"], record["decoding"]
    assert Config.from_json(json.dumps(record)) == preset("big")


def test_xla_is_off_where_a_file_of_1_1_0_leaves_it_to_the_device():
    record = json.loads(Config().to_json())
    for section in ("training", "decoding"):
        assert record[section]["jit_compile"] is False
        record[section]["jit_compile"] = None
    assert Config.from_json(json.dumps(record)) == Config()


def test_a_preset_of_the_wrong_type_is_refused():
    record = json.loads(Config().to_json()) | {"preset": 3}
    with pytest.raises(UserError, match="`preset` must be str. Received: 3"):
        Config.from_json(json.dumps(record))


@pytest.mark.parametrize("text", ["", "{", "null", "3", "[]", '"preset"', "{}", "[" * 100_000])
def test_a_damaged_file_is_refused(text):
    with pytest.raises(UserError, match="not a valid config.json"):
        Config.from_json(text)


@pytest.mark.parametrize(
    ("section", "fields", "named"),
    [
        ("model", {"depth": 6}, "model.depth"),
        ("modle", {"d_model": 512}, "modle.d_model"),
        ("model", {"d_model": 511}, "d_model"),
        ("model", {"dropout": None}, "model.dropout"),
        ("data", {"train": "prefix"}, "data.train"),
        ("data", {"train": [1]}, "data.train"),
        ("training", {"seed": True}, "training.seed"),
    ],
)
def test_the_error_for_an_invalid_field_names_it(section, fields, named):
    with pytest.raises(UserError, match=named):
        Config.from_json(json.dumps({"preset": "", section: fields}))


def test_set_may_complete_what_the_file_begins(tmp_path):
    file = tmp_path / "a.yaml"
    file.write_text("training: {keep_last: 3}")
    config = configure(file=file, overrides=["training.average_last=3"])
    assert (config.training.keep_last, config.training.average_last) == (3, 3)
    with pytest.raises(UserError, match=r"must be at least average_last \(4\)"):
        configure(file=file)


def test_editors_know_every_option_of_the_search_with_its_type():
    fields = (*dataclasses.fields(DecodingConfig), *dataclasses.fields(SamplingConfig))
    types = {field.name: field.type for field in fields if field.name != "checkpoint"}
    assert get_type_hints(SearchOptions) == types
