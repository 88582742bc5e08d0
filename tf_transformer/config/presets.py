"""Presets: the paper's base and big models (Table 3), and sizes for smaller data; recipes.

Presets are absolute: each states all differences from the defaults, which are the paper's
base model and recipe; none is built on another. A recipe overrides any preset in the settings
it names, and leaves the others alone.
"""

import dataclasses
import json
import shlex
from pathlib import Path
from typing import Any

from tf_transformer.base.errors import UserError
from tf_transformer.base.former import experiment_of_preset, gone
from tf_transformer.config.config import (
    SETTINGS,
    Config,
    DecodingConfig,
    ModelConfig,
    TrainingConfig,
    settings_with,
)
from tf_transformer.config.settings import find_named


def _table3(
    d_model: int, d_ff: int, num_heads: int, dropout: float, steps: int, averaged: int
) -> Config:
    """Returns a row of Table 3, decoded with the average of `averaged` checkpoints (6.1)."""
    model = ModelConfig(
        vocab_size=37_000, num_layers=6, d_model=d_model, d_ff=d_ff, num_heads=num_heads,
        dropout=dropout,
    )  # fmt: skip
    training = TrainingConfig(steps=steps, keep_last=averaged, average_last=averaged)
    return Config(model=model, training=training)


def _multi30k(vocab_size: int, positions: str, steps: int, averaged: int) -> Config:
    """Returns a model for Multi30k (29,000 short caption pairs) on two CPU cores.

    docs/results/translation.md has the results. Sizes are from Wu et al. 2021 (arXiv
    2105.14462), who found small, well-regularised models best. Pre-LN, because post-LN took
    several times as many steps before it used the source. Long training (18,000 steps are 140
    epochs) calls for dropout inside the sublayers and a moving average of the weights.
    """
    model = ModelConfig(
        vocab_size=vocab_size, num_layers=4, d_model=128, d_ff=256, num_heads=4, dropout=0.3,
        attention_dropout=0.1, activation_dropout=0.1, norm_first=True, positions=positions,
    )  # fmt: skip
    training = TrainingConfig(
        steps=steps, batch_tokens=4_096, warmup_steps=2_000, learning_rate_scale=2.53,
        ema_decay=0.999, evaluate_every=1_000, keep_last=averaged, average_last=averaged,
    )  # fmt: skip
    # A translated caption is hardly longer than its source: docs/results/text.md.
    decoding = DecodingConfig(beam_size=5, alpha=0.6, max_extra_length=15)
    return Config(model=model, training=training, decoding=decoding)


TABLE3 = {
    "base": _table3(512, 2048, num_heads=8, dropout=0.1, steps=100_000, averaged=5),
    "big": _table3(1024, 4096, num_heads=16, dropout=0.3, steps=300_000, averaged=20),
}

# fmt: off
PRESETS = {
    **TABLE3,
    # The built-in corpus: minutes on two CPU cores.
    "tiny": Config(
        model=ModelConfig(
            vocab_size=1_000, num_layers=2, d_model=128, d_ff=512, num_heads=4, dropout=0.1),
        training=TrainingConfig(
            steps=2_000, batch_tokens=2_048, warmup_steps=300,
            evaluate_every=250, keep_last=4, average_last=4),
    ),
    # A few hundred thousand pairs on one small GPU or a patient CPU.
    "small": Config(
        model=ModelConfig(
            vocab_size=16_000, num_layers=4, d_model=256, d_ff=1024, num_heads=4, dropout=0.1),
        training=TrainingConfig(
            steps=50_000, batch_tokens=8_192, warmup_steps=4_000, evaluate_every=1_000),
    ),
    # What one core decodes fast, taught by a larger model: docs/guides/small_and_fast.md. Most
    # layers are in the encoder, which runs once per sentence; it is decoded without a beam.
    "student": Config(
        model=ModelConfig(
            vocab_size=8_000, num_layers=6, decoder_layers=2, d_model=128, d_ff=512,
            num_heads=4, dropout=0.1, norm_first=True, positions="relative"),
        training=TrainingConfig(
            steps=4_000, batch_tokens=4_096, warmup_steps=1_000, learning_rate_scale=1.8,
            ema_decay=0.999, evaluate_every=1_000, keep_last=3, average_last=3),
        decoding=DecodingConfig(beam_size=1),
    ),
    # Relative positions reach in a third of the steps what sinusoids do, and more on test text.
    "multi30k": _multi30k(8_000, "relative", 6_000, 3),
    # As in Wu et al., for the tokenised, lower-cased text that comes with the data.
    "multi30k-tok": _multi30k(10_000, "sinusoidal", 18_000, 10).replace(
        {"data.bleu_tokenizer": "none"}
    ),
}
# fmt: on


def preset(name: str) -> Config:
    """Returns a preset by name; UserError for an unknown one.

    Example:
        >>> preset("big").model.d_model
        1024
    """
    if experiment := experiment_of_preset(name):
        raise UserError(gone(f"The preset {name}", experiment))
    return dataclasses.replace(find_named("model", name, PRESETS), preset=name)


# The settings of each recipe: `paper` is what the paper says of models of any size, `t2t` the
# default of its authors' code (tensor2tensor's transformer_base_v3; only transformer_base_v1
# matches the paper), `modern` what later work has shown to be robust, also at small scale.
RECIPES: dict[str, dict[str, Any]] = {
    "paper": {
        name: setting.default
        for name, setting in settings_with(by_preset=False).items()
        if setting.paper
    },
    "t2t": {
        "model.norm_first": True,  # layer_preprocess_sequence n, since v2
        "model.tie_embeddings": True,  # shared_embedding_and_softmax_weights
        "model.attention_dropout": 0.1,  # attention_dropout, since v2
        "model.activation_dropout": 0.1,  # relu_dropout, since v2
        "model.query_key_gain": 1.0,  # initializer uniform_unit_scaling
        "model.value_gain": 1.0,  # initializer uniform_unit_scaling
        "training.batch_tokens": 32_768,  # batch_size 4,096 on each of 8 GPUs
        "training.warmup_steps": 8_000,  # learning_rate_warmup_steps, since v2
        "training.learning_rate_scale": 2.0,  # learning_rate_constant, in v3
        "training.beta_1": 0.9,  # optimizer_adam_beta1
        "training.beta_2": 0.997,  # optimizer_adam_beta2, in v3
        "training.epsilon": 1e-9,  # optimizer_adam_epsilon
        "training.label_smoothing": 0.1,  # label_smoothing
        "training.clip_norm": 0.0,  # clip_grad_norm
        "data.max_length": 256,  # max_length
        "decoding.beam_size": 4,  # its documented decoding
        "decoding.alpha": 0.6,  # its documented decoding
        "decoding.max_extra_length": 100,  # extra_length
    },
    "modern": {
        "model.norm_first": True,  # Xiong et al. 2020; this project on Multi30k
        "model.tie_embeddings": True,  # the paper, 3.4
        "training.batch_tokens": 50_000,  # larger: Ott et al. 2018, Popel 2018
        "training.warmup_steps": 4_000,  # the paper, 5.3
        "training.learning_rate_scale": 1.25,  # this project on Multi30k
        "training.beta_1": 0.9,  # the paper, 5.3
        "training.beta_2": 0.98,  # the paper, 5.3
        "training.epsilon": 1e-9,  # the paper, 5.3
        "training.label_smoothing": 0.1,  # the paper, 5.4
        "training.keep_last": 10,  # this project on Multi30k
        "training.average_last": 10,  # this project on Multi30k
    },
}


def recipe(name: str) -> dict[str, Any]:
    """Returns the values of a recipe by "section.field"; UserError for an unknown one."""
    return find_named("recipe", name, RECIPES)


def train_command(config: Config, output: Path | None = None) -> str:
    """Returns the command that trains a configuration: its preset, and settings that differ.

    With a run directory as `output`, the command resumes that run. A configuration without a
    preset is written as changes to base.
    """
    name = config.preset if config.preset in PRESETS else "base"
    before, now = preset(name).flat(), config.flat()
    changed = {key for key in now if now[key] != before[key]} - {"preset"}
    if config.training.init_from:
        # What is not given is as in that run.
        changed |= {"data.tokenizer", "data.subword_sampling", "model.vocab_size"}
    words = ["tf-transformer", "train", "--model", name]
    for key in filter(changed.__contains__, now):
        words += _option(key, now[key])
    words += ["--output", str(output)] if output else []
    return shlex.join(words)


def _option(name: str, value: Any) -> list[str]:
    """Returns the words that give a setting, by --set but for a list that has an option."""
    if "." not in name:
        return [f"--{name}", value]
    if isinstance(value, (list, tuple)):
        if option := SETTINGS[name].option:  # --set would split its values at commas
            return [word for each in value for word in (option, each)]
        value = ",".join(value)
    return ["--set", f"{name}={value if isinstance(value, str) else json.dumps(value)}"]
