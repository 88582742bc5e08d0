"""Several models that decode as one."""

import math
from collections.abc import Callable, Sequence

import tensorflow as tf

from tf_transformer.models.transformer import Transformer


class Ensemble:
    """Decodes with several models as with one `Transformer`.

    Its logits are log(1/M sum_m p_m), which are already normalised. The M models, at least one,
    were trained with one tokenizer.
    """

    def __init__(self, models: Sequence[Transformer]) -> None:
        self.models = list(models)
        self.vocab_size = models[0].vocab_size
        sources = [model.longest_source for model in models if model.longest_source]
        targets = [model.longest_target for model in models if model.longest_target]
        self.longest_source = min(sources, default=None)
        self.longest_target = min(targets, default=None)

    def __call__(self, inputs: dict, training: bool = False) -> tf.Tensor:
        """Returns logits: {"source": [B, S], "target": [B, T]} -> [B, T, V]."""
        return _mean_log_probs([model(inputs, training=training) for model in self.models])

    def start_search(self, source: tf.Tensor, by_xla: bool = False) -> tuple[Callable, list]:
        """Returns a search's step and each model's cache; see `Transformer.start_search`."""
        started = [model.start_search(source, by_xla) for model in self.models]
        steps, first_caches = zip(*started, strict=True)

        def step(tokens, index, ancestry, caches):
            results = [
                model_step(tokens, index, ancestry, cache)
                for model_step, cache in zip(steps, caches, strict=True)
            ]
            logits, caches = zip(*results, strict=True)
            return _mean_log_probs(logits), list(caches)

        return step, list(first_caches)


def only_model(model: Transformer | Ensemble) -> Transformer:
    """Returns the model, for callers that need its layers; ValueError if it is an ensemble."""
    if isinstance(model, Ensemble):
        raise ValueError("`model` must be a single model. Received: an ensemble.")
    return model


def models_of(model: Transformer | Ensemble) -> list[Transformer]:
    """Returns the models of an ensemble, or a list of the single model."""
    return model.models if isinstance(model, Ensemble) else [model]


def _mean_log_probs(logits: Sequence[tf.Tensor]) -> tf.Tensor:
    """Returns log(mean(softmax(logits))) of M models: M times [..., V] -> [..., V]."""
    log_probs = tf.stack([tf.nn.log_softmax(logits_of_one) for logits_of_one in logits])
    return tf.reduce_logsumexp(log_probs, axis=0) - math.log(len(logits))
