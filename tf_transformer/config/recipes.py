"""Training recipes that apply to any model.

A recipe overrides the preset in the settings it names and leaves the others alone. `paper` is
the paper's recipe; `t2t` is the default of its authors' code (tensor2tensor's
transformer_base_v3; only transformer_base_v1 matches the paper); `modern` is what later work
has shown to be robust, also at small scale.
"""

from dataclasses import dataclass
from typing import Any

from tf_transformer.config.settings import find_by_name


@dataclass(frozen=True)
class Recipe:
    """Settings with their values and sources."""

    settings: dict[str, tuple[Any, str]]

    @property
    def values(self) -> dict[str, Any]:
        """The values by "section.field"."""
        return {name: value for name, (value, _) in self.settings.items()}


RECIPES = {
    "paper": Recipe(
        {
            "model.norm_first": (False, "3.1"),
            "model.tie_embeddings": (True, "3.4"),
            "model.attention_dropout": (0.0, "5.4, which has none there"),
            "model.activation_dropout": (0.0, "5.4, which has none there"),
            "data.tokenizer_kind": ("bpe", "5.1"),
            "training.batch_tokens": (25_000, "5.1"),
            "training.warmup_steps": (4_000, "5.3"),
            "training.learning_rate_scale": (1.0, "5.3"),
            "training.beta_1": (0.9, "5.3"),
            "training.beta_2": (0.98, "5.3"),
            "training.epsilon": (1e-9, "5.3"),
            "training.label_smoothing": (0.1, "5.4"),
            "training.clip_norm": (0.0, "5.3, which has none"),
            "training.ema_decay": (0.0, "6.1, which averages checkpoints"),
            "training.patience": (0, "5.2, a fixed number of steps"),
            "decoding.beam_size": (4, "6.1"),
            "decoding.alpha": (0.6, "6.1"),
            "decoding.max_extra_length": (50, "6.1"),
        }
    ),
    "t2t": Recipe(
        {
            "model.norm_first": (True, "layer_preprocess_sequence n, since v2"),
            "model.tie_embeddings": (True, "shared_embedding_and_softmax_weights"),
            "model.attention_dropout": (0.1, "attention_dropout, since v2"),
            "model.activation_dropout": (0.1, "relu_dropout, since v2"),
            "model.query_key_gain": (1.0, "initializer uniform_unit_scaling"),
            "model.value_gain": (1.0, "initializer uniform_unit_scaling"),
            "training.batch_tokens": (32_768, "batch_size 4,096 on each of 8 GPUs"),
            "training.warmup_steps": (8_000, "learning_rate_warmup_steps, since v2"),
            "training.learning_rate_scale": (2.0, "learning_rate_constant, in v3"),
            "training.beta_1": (0.9, "optimizer_adam_beta1"),
            "training.beta_2": (0.997, "optimizer_adam_beta2, in v3"),
            "training.epsilon": (1e-9, "optimizer_adam_epsilon"),
            "training.label_smoothing": (0.1, "label_smoothing"),
            "training.clip_norm": (0.0, "clip_grad_norm"),
            "data.max_length": (256, "max_length"),
            "decoding.beam_size": (4, "its documented decoding"),
            "decoding.alpha": (0.6, "its documented decoding"),
            "decoding.max_extra_length": (100, "extra_length"),
        }
    ),
    "modern": Recipe(
        {
            "model.norm_first": (True, "Xiong et al. 2020; this project on Multi30k"),
            "model.tie_embeddings": (True, "the paper, 3.4"),
            "training.batch_tokens": (50_000, "larger: Ott et al. 2018, Popel 2018"),
            "training.warmup_steps": (4_000, "the paper, 5.3"),
            "training.learning_rate_scale": (1.25, "this project on Multi30k"),
            "training.beta_1": (0.9, "the paper, 5.3"),
            "training.beta_2": (0.98, "the paper, 5.3"),
            "training.epsilon": (1e-9, "the paper, 5.3"),
            "training.label_smoothing": (0.1, "the paper, 5.4"),
            "training.keep_last": (10, "this project on Multi30k"),
            "training.average_last": (10, "this project on Multi30k"),
        }
    ),
}


def recipe(name: str) -> Recipe:
    """Returns a recipe by name; raises UserError, with the nearest name, for an unknown one."""
    return find_by_name("recipe", name, RECIPES)
