"""How far learned positions reach (paper Table 3, row E): as far as training did."""

from tf_transformer.config import Config
from tf_transformer.data.batching import bucket_boundaries
from tf_transformer.data.encoded import EncodedCorpus
from tf_transformer.errors import UserError
from tf_transformer.run import Run


def check_positions(config: Config) -> None:
    """Refuses learned positions that are fewer than those of the longest sentence."""
    longest = bucket_boundaries(config.data.max_length)[-1]
    if config.model.positions == "learned" and config.model.max_length < longest:
        raise UserError(
            "`model.max_length` must be at least `data.max_length`, a multiple of 4, where "
            "positions are learned. "
            f"Received: {config.model.max_length} and {config.data.max_length}."
        )


def record_positions(run: Run, corpus: EncodedCorpus) -> None:
    """Keeps in the run how long the longest sentences of its training text are."""
    if run.config.model.positions == "learned":
        lengths = corpus.source_lengths, corpus.target_lengths
        run.write_trained_lengths(*(int(side.max()) for side in lengths))


def position_limits(run: Run) -> tuple[int, int] | None:
    """The most tokens of a source and of a target that a run's model takes.

    Beyond the longest of training, learned positions have their random initial values.

    Returns:
        Both numbers, EOS counted; None if positions are sinusoids, which have no limit.
    """
    return run.trained_lengths() if run.config.model.positions == "learned" else None
