"""Settings from a file."""

import json
from dataclasses import fields

import pytest

from tf_transformer.api.configuration import configure
from tf_transformer.config import (
    Config,
    DataConfig,
    DecodingConfig,
    ModelConfig,
    TrainingConfig,
)
from tf_transformer.config.config import read_settings_file
from tf_transformer.config.presets import PRESETS, preset
from tf_transformer.errors import UserError

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
        ("modle: {dropout: 0.1}", "no setting 'modle.dropout'. Did you mean 'model.dropout'"),
        ("batch_tokens: 9", "mean 'training.batch_tokens' or 'decoding.batch_tokens'"),
        ("batch_token: 9", "mean 'training.batch_tokens' or 'decoding.batch_tokens'"),
        ("dropout: 0.1", "no setting 'dropout'. Did you mean 'model.dropout'"),
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
    with pytest.raises(UserError, match=f"--config .*a.yaml: .*{expected}"):
        read_settings_file(tmp_path / "a.yaml")


def test_the_error_for_a_damaged_or_missing_file_names_it(tmp_path):
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(UserError, match="--config .*config.json: .* not a valid config.json"):
        read_settings_file(tmp_path / "config.json")
    with pytest.raises(UserError, match="--config .*a.yaml cannot be read"):
        read_settings_file(tmp_path / "a.yaml")


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_survives_its_file(name):
    assert Config.from_json(preset(name).to_json()) == preset(name)


def test_every_field_survives_its_file():
    config = Config(
        preset="big",
        task="parsing",
        model=ModelConfig(key_dim=16, value_dim=32, norm_first=True, dropout=0.0),
        data=DataConfig(train=("a", "ä b"), valid=("c",), source="en", target="de"),
        training=TrainingConfig(epsilon=1e-7, jit_compile=True, seed=2**31),
        decoding=DecodingConfig(alpha=1.0),
    )
    text = config.to_json()
    assert Config.from_json(text) == config
    assert "ä b" in text


def test_the_file_has_every_field():
    record = json.loads(Config().to_json())
    assert list(record) == [field.name for field in fields(Config)]
    for section in ("model", "data", "training", "decoding"):
        expected = [field.name for field in fields(getattr(Config(), section))]
        assert list(record[section]) == expected


def test_a_file_may_lack_settings():
    record = json.loads(preset("big").to_json())
    del record["training"]["jit_compile"], record["decoding"]
    assert Config.from_json(json.dumps(record)) == preset("big")


@pytest.mark.parametrize("name", ["task", "preset"])
def test_a_task_or_preset_of_the_wrong_type_is_refused(name):
    record = json.loads(Config().to_json()) | {name: 3}
    with pytest.raises(UserError, match=f"`{name}` must be str. Received: 3"):
        Config.from_json(json.dumps(record))


@pytest.mark.parametrize(
    "text",
    ["", "{", "null", "3", "[]", '"preset"', "{}", '{"preset": "", "task": "", "model": 3}'],
)
def test_a_damaged_file_is_refused(text):
    with pytest.raises(UserError, match="not a valid config.json"):
        Config.from_json(text)


@pytest.mark.parametrize(
    ("section", "fields", "named"),
    [
        ("model", {"depth": 6}, "model.depth"),
        ("modle", {"d_model": 512}, "modle.d_model"),
        ("model", {"d_model": "512"}, "model.d_model"),
        ("model", {"d_model": 511}, "model.d_model"),
        ("model", {"dropout": None}, "model.dropout"),
        ("data", {"train": "prefix"}, "data.train"),
        ("data", {"train": [1]}, "data.train"),
        ("training", {"seed": True}, "training.seed"),
    ],
)
def test_the_error_for_an_invalid_field_names_it(section, fields, named):
    with pytest.raises(UserError, match=named):
        Config.from_json(json.dumps({"preset": "", "task": "", section: fields}))


def test_set_may_complete_what_the_file_begins(tmp_path):
    file = tmp_path / "a.yaml"
    file.write_text("training: {keep_last: 3}")
    config = configure(file=file, overrides=["training.average_last=3"])
    assert (config.training.keep_last, config.training.average_last) == (3, 3)
    with pytest.raises(UserError, match=r"must be at least average_last \(4\)"):
        configure(file=file)
