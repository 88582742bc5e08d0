"""Tensors that differ from those of Marian's Transformer."""

import pytest

pytest.importorskip("safetensors")

from safetensors.numpy import load_file, save_file


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("model.shared.weight", None, "must have model.shared.weight of shape .* nothing"),
        ("final_logits_bias", lambda x: x[0], "final_logits_bias of shape"),
        ("lm_head.weight", lambda x: x + 1, "lm_head.weight must equal model.shared.weight"),
        ("model.encoder.layernorm_embedding.weight", lambda x: x, "Received also: model.enc"),
        ("model.decoder.embed_positions.weight", lambda x: x, "hold the paper's sinusoids"),
        ("model.decoder.embed_positions.weight", lambda x: x[0], "hold the paper's sinusoids"),
    ],
)
def test_unexpected_tensors_are_refused(checkpoint, assert_refused, name, change, message):
    tensors = load_file(checkpoint / "model.safetensors")
    tensor = tensors.pop(name, tensors["model.shared.weight"])
    if change:
        tensors[name] = change(tensor)
    save_file(tensors, checkpoint / "model.safetensors")
    assert_refused(message)
