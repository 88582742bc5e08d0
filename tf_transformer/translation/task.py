"""Translation: learns from parallel text, scored by BLEU; which test lines a run has seen."""

import dataclasses
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tf_transformer.base.errors import UserError
from tf_transformer.base.output import NamedProgress
from tf_transformer.config import EOS_ID, Config, DataConfig
from tf_transformer.data import builtin
from tf_transformer.data.encoded_corpus import EncodedCorpus
from tf_transformer.data.text import ROLES, Role, SideName, all_pairs, corpora, read_some_pairs
from tf_transformer.data.tokenizer import Tokenizer
from tf_transformer.decoding.engine import GraphEngine
from tf_transformer.evaluation import DevText, make_metric, score_translations, tokenizer_for
from tf_transformer.run import Run
from tf_transformer.tasks.task import SequenceTask
from tf_transformer.training.trainer import Result
from tf_transformer.translation.translator import Translator

logger = logging.getLogger(__name__)

SAMPLES = 5


class TranslationTask(SequenceTask):
    """Data, model and dev score of a translation run."""

    prose = True

    @staticmethod
    def settled(config: Config) -> Config:
        """Returns the configuration with the tokeniser of BLEU that fits the dev text."""
        tokenize = config.data.bleu_tokenizer
        targets = [target for _, target in all_pairs(corpora(config.data.valid, config.data))]
        return config.replace({"data.bleu_tokenizer": tokenizer_for(tokenize, targets)})

    @staticmethod
    def effective_data(run: Run, *, may_write: bool = True) -> DataConfig:
        """Returns the run's data; without files, writes the built-in corpus into the run."""
        data = run.config.data
        if data.train or data.valid:
            return data
        folder = run.data / "builtin"
        if may_write:
            builtin.write_splits(folder)
        return dataclasses.replace(
            data,
            train=(str(folder / "train"),),
            valid=(str(folder / "dev"),),
            source=builtin.LANGUAGES[0],
            target=builtin.LANGUAGES[1],
        )

    @staticmethod
    def read_dev_text(run: Run, source: Any, reference: Path) -> DevText:
        """Reads the pairs to be scored by BLEU; see `read_some_pairs` for errors."""
        sources, references = zip(*read_some_pairs(source, reference), strict=True)
        tokenize = tokenizer_for(run.config.data.bleu_tokenizer, references)
        metric = make_metric("bleu", [references], tokenize)
        return DevText(sources, metric, "translation")

    def __init__(self, run: Run, progress: NamedProgress, *, may_encode: bool = True) -> None:
        super().__init__(run, progress, may_encode=may_encode)
        source = run.config.training.init_from
        before = Run.open(source) if source else run
        self._old_dev = _old_dev_pairs(run, before, self.dev_pairs, may_encode)
        olds = [target for _, target in self._old_dev]
        self._old_tokenizer = tokenizer_for(before.config.data.bleu_tokenizer, olds)

    def evaluator(self, model: keras.Model) -> Callable[[], Result]:
        """Returns a function that translates the dev set with the model's current weights."""
        # With one stream, the last bits of the scores do not depend on the number of cores.
        engine = GraphEngine(model, self.tokenizer, streams=1)
        translator = Translator(decoding=self.run.config.decoding, engine=engine)
        tokenize = self.run.config.data.bleu_tokenizer
        sources, references = ([pair[side] for pair in self.dev_pairs] for side in (0, 1))

        def evaluate() -> Result:
            translations = translator.translate(sources)
            scores = score_translations(translations, references, tokenize=tokenize)
            metrics = {
                "bleu": scores.bleu.value, "chrf": scores.chrf.value, "exact": scores.exact,
            }  # fmt: skip
            headline = f"BLEU {scores.bleu.value:.2f}"
            lines = [
                f"\n  source     {source}\n  reference  {reference}\n  model      {translation}"
                for source, reference, translation in zip(
                    sources[:SAMPLES], references, translations, strict=False
                )
            ]
            lines.append(f"\ndev {scores.bleu}")
            lines.append(f"dev sentences translated exactly: {100 * scores.exact:.1f} %")
            if self._old_dev:
                olds, answers = zip(*self._old_dev, strict=True)
                found = translator.translate(olds)
                old = score_translations(found, answers, tokenize=self._old_tokenizer).bleu
                metrics["old_bleu"] = old.value
                headline += f"  old dev set {old.value:.2f}"
                lines.append(f"old dev set {old}")
            example = sources[0] if sources else "Your sentence."
            return Result(metrics, headline, example, lines)

        return evaluate


def _old_dev_pairs(
    run: Run, before: Run, dev: list[tuple[str, str]], may_write: bool
) -> list[tuple[str, str]]:
    """Reads the dev set of the run that training starts from, if it differs from `dev`."""
    same_task = before.config.task == run.config.task
    if before is run or not same_task or before.has_no_text:
        return []
    old = TranslationTask.effective_data(Run(run.path, before.config), may_write=may_write)
    try:
        pairs = list(all_pairs(corpora(old.valid, old)))
    except UserError as error:
        logger.warning("the dev set of %s is not scored: %s", before.path, error)
        return []
    if not pairs or pairs == dev:
        return []
    logger.info("the dev set of %s is scored as well: %s pairs", before.path, f"{len(pairs):,}")
    return pairs


@dataclasses.dataclass(frozen=True)
class Overlap:
    """Numbers of test sentences that occur in the training text, or in the dev text."""

    sources: int
    references: int


def overlaps(
    run: Run,
    sources: Sequence[str],
    references: Sequence[Sequence[str]],
    tag: str | None = None,
) -> dict[Role, Overlap]:
    """Counts the test sentences that occur in the run's training text or dev text.

    Sentences are compared as token ids, so differences that the tokenizer normalises do not
    count, and training pairs that were filtered out are not found. Sentences without a token
    are ignored. A line counts once if any of its references occurs. Raises UserError if the run
    no longer has its tokenised text.
    """
    tokenizer = Tokenizer(run.require_tokenizer(), tag or "")
    source_ids = _with_eos(tokenizer.tokenize(tf.constant(list(sources))))
    target_ids = [
        _with_eos(tokenizer.tokenize_target(tf.constant(list(lines)))) for lines in references
    ]
    result = {}
    for role in ROLES:
        corpus = EncodedCorpus.open(run.data / role)
        targets = [_seen(corpus, "target", rows) for rows in target_ids]
        result[role] = Overlap(
            int(_seen(corpus, "source", source_ids).sum()), int(np.any(targets, axis=0).sum())
        )
    return result


def describe_overlaps(overlaps: dict[Role, Overlap], number: int) -> str:
    """Describes the overlaps of `number` test sentences; "" if there are none."""
    parts = [
        f"{overlap.sources:,} sources and {overlap.references:,} references are in the "
        f"{ROLES[role]}"
        for role, overlap in overlaps.items()
        if overlap.sources or overlap.references
    ]
    return f"of {number:,} lines, {'; '.join(parts)}" if parts else ""


def _with_eos(ids: tf.RaggedTensor) -> list[np.ndarray]:
    return [np.append(row, EOS_ID).astype(np.int32) for row in ids.numpy()]


def _seen(corpus: EncodedCorpus, side: SideName, rows: Sequence[np.ndarray]) -> np.ndarray:
    """Tells for each row of ids whether it is a sentence on that side: bool [rows]."""
    seen = np.zeros(len(rows), bool)
    lengths = np.array([len(row) for row in rows])
    for length in set(lengths.tolist()) - {1}:  # EOS alone
        candidates = np.flatnonzero(corpus.lengths(side) == length)
        known = {row.tobytes() for row in corpus.padded(side, candidates, length)}
        for index in np.flatnonzero(lengths == length).tolist():
            seen[index] = rows[index].tobytes() in known
    return seen
