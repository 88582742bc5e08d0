"""What docs/serving.md and serving/ say of the SavedModel is what it has."""

import re

import pytest
from command_line import ROOT


def test_the_page_names_every_input_and_output(session):
    text = (ROOT / "docs" / "serving.md").read_text("utf-8")
    for name, signature in session.signatures.items():
        (row,) = re.findall(rf"^\| `{name}` \|(.*)\|(.*)\|$", text, re.MULTILINE)
        for cell, known in zip(row, (signature.inputs, signature.outputs), strict=True):
            named = set(re.findall(r"`(\w+)`", cell)) - {"nbest"}
            if "as `nbest`" in cell:
                named |= set(session.signatures["nbest"].outputs)
            assert named == set(known), name


def test_tf_serving_reads_the_labels():
    config = pytest.importorskip("tensorflow_serving.config.model_server_config_pb2")
    from google.protobuf import text_format

    text = (ROOT / "serving" / "models.config").read_text("utf-8")
    (model,) = text_format.Parse(text, config.ModelServerConfig()).model_config_list.config
    versions = set(model.model_version_policy.specific.versions)
    assert set(model.version_labels.values()) <= versions
    assert set(model.version_labels) == {"stable", "canary"}
