"""The training recipe (paper 5), evaluation and checkpoints."""

from dataclasses import dataclass

from tf_transformer.config.settings import (
    MAX_COUNT,
    MAX_FLOAT,
    require,
    require_allowed,
    setting,
)

BEST_BY = ("bleu", "chrf", "perplexity", "f1", "accuracy")

# Target positions whose logits are computed at once in training. With fewer, accumulating the
# gradients of the output projection takes longer.
LOGIT_ROWS = 512

PRECISIONS = ("float32", "mixed_bfloat16", "mixed_float16")


# fmt: off
@dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """The recipe (paper 5). A batch is the data of one update, over all devices."""

    steps: int = setting(100_000, low=1, high=MAX_COUNT, help="updates in total")
    batch_tokens: int = setting(
        25_000, low=1, high=MAX_COUNT, help="tokens per side in one update, over all devices")
    max_tokens_per_device: int | None = setting(
        None, low=0, high=MAX_COUNT,
        help="tokens per side that a device processes at once; larger batches accumulate "
        "gradients, with the same result; 0: no limit; None: 4,096 on a CPU, 0 on a GPU")
    warmup_steps: int = setting(
        4_000, low=1, high=MAX_COUNT, help="steps in which the learning rate grows linearly")
    learning_rate_scale: float = setting(
        1.0, above=0, high=MAX_FLOAT, help="factor on the paper's learning rate (5.3)")
    beta_1: float = setting(0.9, low=0, below=1, help="Adam's decay rate of the first moment")
    beta_2: float = setting(0.98, low=0, below=1, help="Adam's decay rate of the second moment")
    epsilon: float = setting(1e-9, above=0, high=1, help="term added to Adam's denominator")
    label_smoothing: float = setting(
        0.1, low=0, below=1, help="probability spread over the vocabulary (5.4)")
    clip_norm: float = setting(
        0.0, low=0, high=MAX_FLOAT, help="largest global norm of the gradient; 0: no clipping")
    ema_decay: float = setting(
        0.0, low=0, below=1,
        help="decay of a moving average, evaluated and saved instead of the weights; 0: off")
    evaluate_every: int = setting(
        1_500, low=1, high=MAX_COUNT, help="steps between evaluations on the dev set")
    best_by: str = setting(
        "bleu", choices=BEST_BY, help="dev score that decides which weights are best")
    keep_last: int = setting(
        5, low=1, high=MAX_COUNT, help="newest checkpoints kept; at least average_last")
    average_last: int = setting(
        5, low=1, high=MAX_COUNT, help="newest checkpoints averaged at the end (6.1)")
    patience: int = setting(
        0, low=0, high=MAX_COUNT,
        help="evaluations without a better score after which training ends; 0: off")
    save_minutes: float = setting(
        10.0, above=0, high=1_000_000, help="minutes between saves of the state for resuming")
    precision: str = setting("float32", choices=PRECISIONS, help="Keras's dtype policy")
    recompute: bool = setting(
        False,
        help="recompute layers in the backward pass: less memory, slower, the same result")
    jit_compile: bool = setting(False, help="compile the train step with XLA")
    deterministic: bool = setting(
        False, help="fix the order of additions on a GPU, which is slower; a CPU's always is")
    init_from: str = setting(
        "", help="run to start from: its best weights, its tokenizer and, without a model or "
        "recipe, its training settings; empty: none")
    freeze: tuple[str, ...] = setting(
        (), help="layers not to train, as shell patterns: encoder, or !*norm for all but norms")
    lora_rank: int = setting(
        0, low=0, high=65_536,
        help="train only LoRA adapters of this rank, on the weights of init_from; 0: off")
    schedule_start: int = setting(
        0, low=0, high=MAX_COUNT, help="steps of the learning-rate schedule to skip")
    seed: int = setting(
        1, low=0, high=2**32 - 1,
        help="seed of initial weights, dropout and the order of batches")
    # fmt: on

    def __post_init__(self) -> None:
        require_allowed(self, "training.")
        kept, averaged = self.keep_last, self.average_last
        at_least = f"at least average_last ({averaged})"
        require(kept >= averaged, "training.keep_last", at_least, kept)
