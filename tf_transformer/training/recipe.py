"""The paper's training recipe (paper 5.3, 5.4): optimizer, loss and metrics of a model."""

import math

from tf_transformer.config import Config, TrainingConfig
from tf_transformer.fast.optimizers import Adam
from tf_transformer.layers.stack import Stack
from tf_transformer.models.losses import LabelSmoothedCrossEntropy
from tf_transformer.models.metrics import Perplexity, TokenAccuracy, TokenCount
from tf_transformer.models.schedules import TransformerSchedule
from tf_transformer.models.token_model import TokenModel
from tf_transformer.models.transformer import Transformer


def compile_model(model: TokenModel, config: Config) -> None:
    """Compiles a model with loss, optimizer and metrics, for `fit` here or in a notebook."""
    training, first = config.training, model.first_label
    for layer in model.layers:
        if isinstance(layer, Stack):
            layer.recompute = training.recompute
    model.compile(
        make_optimizer(training, config.model.d_model),
        LabelSmoothedCrossEntropy(
            training.label_smoothing, first_label=first, scatter=not training.deterministic
        ),
        metrics=[Perplexity(first_label=first), TokenAccuracy(first_label=first), TokenCount()],
        jit_compile=training.jit_compile,
        max_tokens_per_device=training.max_tokens_per_device or None,
        chunked_loss=isinstance(model, Transformer),
    )


def make_optimizer(training: TrainingConfig, d_model: int) -> Adam:
    """Returns Adam with the configured betas and epsilon, and the schedule of paper 5.3."""
    return Adam(
        TransformerSchedule(
            d_model,
            training.warmup_steps,
            training.learning_rate_scale,
            training.schedule_start,
        ),
        beta_1=training.beta_1,
        beta_2=training.beta_2,
        epsilon=training.epsilon,
        global_clipnorm=training.clip_norm or None,
        use_ema=training.ema_decay > 0,
        ema_momentum=training.ema_decay,
        # A prefix of names in checkpoints; Keras would number the optimizers of a process.
        name="adam",
    )


def describe_parameters(model: TokenModel) -> str:
    """Describes the number of parameters, and of trained ones if some are frozen."""
    trained = sum(math.prod(weight.shape) for weight in model.trainable_weights)
    frozen = sum(math.prod(weight.shape) for weight in model.non_trainable_weights)
    line = f"{trained + frozen:,} parameters"
    return f"{line}, {trained:,} of them trained" if frozen else line
