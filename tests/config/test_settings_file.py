"""Settings from YAML and from a run's config.json."""

import pytest

from tf_transformer.config.presets import preset
from tf_transformer.config.settings_file import read_settings_file
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


def test_yaml_has_sections_dotted_names_and_the_values_of_set(tmp_path):
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


def test_the_file_of_a_run_is_the_whole_of_it(tmp_path):
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
def test_what_is_no_setting_is_refused_with_file_and_nearest(tmp_path, text, expected):
    (tmp_path / "a.yaml").write_text(text)
    with pytest.raises(UserError, match=f"--config .*a.yaml: .*{expected}"):
        read_settings_file(tmp_path / "a.yaml")


def test_a_damaged_file_of_a_run_is_named(tmp_path):
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(UserError, match="--config .*config.json: .* not a valid config.json"):
        read_settings_file(tmp_path / "config.json")


def test_a_file_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(UserError, match="--config .*a.yaml cannot be read"):
        read_settings_file(tmp_path / "a.yaml")
