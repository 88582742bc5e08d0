"""The base class of the tasks, the tokenizer of a run, and data files as parallel text."""

import dataclasses
import functools
import itertools
import logging
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from tf_transformer.base.errors import UserError
from tf_transformer.base.files import replacing
from tf_transformer.config import NORMALIZATIONS, Config, DataConfig
from tf_transformer.data import builtin
from tf_transformer.data.augmentation import FORMS, Augmentation, pairs_in_form
from tf_transformer.data.batches import BatchPlan, Mixture, make_dataset
from tf_transformer.data.encoded_corpus import (
    INFO_FILE,
    EncodedCorpus,
    encode_corpus,
    fingerprint,
)
from tf_transformer.data.subword_sampling import SubwordSampler
from tf_transformer.data.text import (
    SIDES,
    Role,
    SideName,
    all_pairs,
    corpora,
    identity,
    text_files,
    write_pairs,
)
from tf_transformer.data.tokenizer import Tokenizer, target_model_path
from tf_transformer.data.vocabulary import (
    require_joinable,
    require_whole,
    symbol_pieces,
    symbols_of,
    train_tokenizer,
)
from tf_transformer.evaluation import DevText
from tf_transformer.models.token_model import TokenModel
from tf_transformer.run import Run
from tf_transformer.tasks.models import begin, build_model, record_positions
from tf_transformer.training.trainer import Result

logger = logging.getLogger(__name__)

Progress = Callable[[str, int], None]


class SequenceTask:
    """Data and model of a run; a subclass provides `evaluator`, which computes its dev scores.

    A subclass may override everything down to `__init__`, and the methods that begin with an
    underscore; their defaults suit text-to-text tasks.
    """

    prose = False  # whether both sides of its parallel text are natural-language sentences
    corpus_class: type[EncodedCorpus] = EncodedCorpus
    make_batches: Callable[..., tf.data.Dataset] = staticmethod(make_dataset)
    vocabulary_sides: Sequence[SideName] = SIDES  # whose text trains a tokenizer
    shapes: Sequence[tuple[int, int]]

    @staticmethod
    def check_config(config: Config) -> None:
        """Raises UserError for data and settings that the task cannot use."""

    @staticmethod
    def effective_data(run: Run, *, may_write: bool = True) -> DataConfig:
        """Returns the run's data as parallel text, which it may write into the run.

        With `may_write` False, as on a worker, another process has written that text already.
        """
        return run.config.data

    @staticmethod
    def read_dev_text(run: Run, source: Any, reference: Path) -> DevText:
        """Reads files for the gate of an export; one file may hold both inputs and answers."""
        raise UserError("Runs of this task have no exports: load the run itself.")

    def __init__(self, run: Run, progress: Progress, *, may_encode: bool = True) -> None:
        """Trains or loads the tokenizer and tokenises the corpora, unless `run` has them.

        Args:
            run: the run directory.
            progress: called with the name of the current step and the number of pairs done.
            may_encode: False for a worker, which reads the corpora that the chief tokenised.

        Raises:
            UserError: if the data cannot be read, or differs from the data that the chief
                tokenised.
        """
        self.run = run
        self.may_encode = may_encode
        self.data = data = self.effective_data(run, may_write=may_encode)
        dev_files = text_files(run.config.data, "valid") or text_files(data, "valid")
        self.dev_set = identity(dev_files)
        lines = self._side_text if data.separate_vocabularies else None
        self.tokenizer = load_tokenizer(run, self._vocabulary_text, self._symbols, lines)
        require_whole(symbols_of(data), run.tokenizer)
        for model in self.tokenizer.models.values() if data.join else ():
            require_joinable(model)
        self.train = self._encoded("train", progress)
        self.valid = self._encoded("valid", progress)
        # What batches are made of: all forms of the training pairs if there are several.
        self.examples = self._encoded("train", progress, *FORMS) if data.caps else self.train
        rate, seed = data.subword_sampling, run.config.training.seed
        self.mixture = Mixture(self.train.sizes, data.mix, seed) if data.mix else None
        sampled = self.examples, self.tokenizer
        self.sampler = SubwordSampler(*sampled, rate, seed) if rate else None
        drawn = {"mixture": self.mixture, "augmentation": self._augmentation()}
        self.plan = self._plan(self._training_lengths(), **drawn)
        self.valid_plan = self._plan(_lengths(self.valid))
        self.dev_pairs = list(all_pairs(corpora(data.valid, data)))
        self.shapes, self.steps_per_epoch = self.plan.shapes, self.plan.steps_per_epoch
        self.validation_steps = self.valid_plan.steps_per_epoch
        record_positions(run, self._record_longest(), is_chief=may_encode)

    def _record_longest(self) -> list[int]:
        """Returns the lengths of the longest source and target; records a joined source."""
        sides = self.examples.source_lengths, self.examples.target_lengths
        longest = [int(side.max()) for side in sides]
        stretch = self.sampler.stretch if self.sampler else 1  # of the lengths in the plan
        joined = [int(length / stretch) for length in self.plan.longest] * bool(self.data.join)
        longest = list(map(max, longest, joined or longest))
        if joined and self.may_encode:
            with replacing(self.run.longest_joined, if_changed=True) as file:
                file.write_text(str(longest[0]))
        return longest

    def _augmentation(self) -> Augmentation | None:
        if not (self.data.join or self.data.caps):
            return None
        texts = corpora(self.data.train, self.data)
        tags = map(len, self.tokenizer.ids([text.tag for text in texts]))
        return Augmentation(self.data, self.train.sizes, list(tags))

    def _vocabulary_text(self) -> Iterator[str]:
        return itertools.chain.from_iterable(map(self._side_text, self.vocabulary_sides))

    def _side_text(self, side: SideName) -> Iterator[str]:
        index, texts = SIDES.index(side), corpora(self.data.train, self.data)
        yield from (pair[index] for pair in all_pairs(texts))
        if caps := self.data.caps:  # in the end, as many lines in other forms as in training
            for text, form in itertools.product(texts, FORMS[1:]):
                pairs = pairs_in_form(text, form, symbols_of(self.data))
                every = itertools.islice(pairs, form - 1, None, round(len(FORMS[1:]) / caps))
                yield from (pair[2 + index] for pair in every)

    def _symbols(self) -> Iterable[str]:
        """Returns pieces that are always in the vocabulary: symbols and tags."""
        return symbol_pieces(symbols_of(self.data))

    def _encoded(self, role: Role, progress: Progress, *forms: int) -> EncodedCorpus:
        texts = corpora(getattr(self.data, role), self.data)
        name = f"{role}-forms" if forms else role
        folder = self.run.data / name
        paths, models = text_files(self.data, role), self.tokenizer.models.values()
        tags = "".join(f" {number}:{text.tag}" for number, text in enumerate(texts) if text.tag)
        symbols = symbols_of(self.data)
        tags += f" forms but of {symbols}" if forms else ""
        made_from = fingerprint(paths, models, self._settings() + tags)
        try:
            corpus = self.corpus_class.open(folder)
            if corpus.fingerprint == made_from:
                return corpus
            reason = "it was encoded from other text or with other settings"
        except UserError as error:
            reason = str(error)
        if not self.may_encode:
            raise UserError(
                f"{folder} does not match the text that this worker sees. All workers need the "
                f"same files ({reason})."
            )
        if folder.exists():
            logger.warning("data/%s is encoded again: %s", name, reason)
        if not (folder / INFO_FILE).exists():
            shutil.rmtree(folder, ignore_errors=True)
        report = functools.partial(progress, f"tokenising {name}")
        pairs = [pairs_in_form(text, form, symbols) for form in forms for text in texts]
        return self._encoder()(
            pairs or [text.pairs() for text in texts],
            self.tokenizer,
            directory=folder,
            fingerprint=made_from,
            progress=report,
        )

    def _settings(self) -> str:
        """Returns the settings that encoding depends on, besides text and tokenizer."""
        return f"{self.data.max_length} {self.data.max_ratio}"

    def _encoder(self) -> Callable[..., EncodedCorpus]:
        """Returns a function that encodes texts, with the length limits of the data."""
        return functools.partial(
            encode_corpus, max_length=self.data.max_length, max_ratio=self.data.max_ratio
        )

    def _training_lengths(self) -> list[np.ndarray]:
        if self.sampler is None:
            return _lengths(self.examples)
        limit = self.data.max_length
        return [self.sampler.lengths(side, limit) for side in self.examples.text_sides]

    def _plan(self, lengths: list[np.ndarray], **drawn: Any) -> BatchPlan:
        training = self.run.config.training
        return BatchPlan(
            *lengths,
            batch_tokens=training.batch_tokens,
            max_length=self.data.max_length,
            seed=training.seed,
            **drawn,
        )

    def describe(self) -> str:
        """Describes the corpora and their batches, for the console."""
        train, valid = self.train.report.summary(), self.valid.report.summary()
        mix = [self.mixture.summary(self.run.config.data.train)] if self.mixture else []
        sampling = [self.sampler.summary()] if self.sampler else []
        lines = [f"train: {train}", *mix, *sampling, f"valid: {valid}", self.plan.summary()]
        return "\n".join(lines)

    def evaluator(self, model: TokenModel) -> Callable[[], Result]:
        """Returns a function that scores the model's current weights on the dev set."""
        raise NotImplementedError

    def build_model(self) -> TokenModel:
        """Builds the model; a new run may take its initial weights from another run."""
        model = self._new_model()
        begin(self.run, model, self.tokenizer, is_chief=self.may_encode)
        return model

    def _new_model(self) -> TokenModel:
        return build_model(self.run.config)

    def training_data(
        self, start_step: int, replicas: Sequence[int] = (0,), num_replicas: int = 1
    ) -> tf.data.Dataset:
        """Returns an endless dataset of batches, starting at `start_step`."""
        share = {"replicas": replicas, "num_replicas": num_replicas}
        return self.make_batches(
            self.examples, self.plan, sampler=self.sampler, start_step=start_step, **share
        )

    def validation_data(
        self, replicas: Sequence[int] = (0,), num_replicas: int = 1
    ) -> tf.data.Dataset:
        """Returns the batches of one pass over the dev set."""
        share = {"replicas": replicas, "num_replicas": num_replicas}
        steps = self.validation_steps
        return self.make_batches(self.valid, self.valid_plan, num_steps=steps, **share)


def _lengths(corpus: EncodedCorpus) -> list[np.ndarray]:
    return [corpus.lengths(side) for side in corpus.text_sides]


# --- Tokenizers -------------------------------------------------------------------------------


def sized(config: Config) -> Config:
    """Returns the configuration with the vocabulary size that its tokenizer will have.

    That is the size of `data.tokenizer`, if set, and at most what the built-in corpus has.
    """
    size = config.model.vocab_size
    if config.data.tokenizer:
        size = Tokenizer(Path(config.data.tokenizer)).vocab_size
    elif not config.data.train and size > builtin.MOST_PIECES:
        message = "vocabulary: %s pieces instead of %s: the built-in corpus has no more"
        logger.info(message, f"{builtin.MOST_PIECES:,}", f"{size:,}")
        size = builtin.MOST_PIECES
    return config.replace({"model.vocab_size": size})


def load_tokenizer(
    run: Run,
    lines: Callable[[], Iterator[str]],
    symbols: Callable[[], Iterable[str]] = tuple,
    side_lines: Callable[[SideName], Iterator[str]] | None = None,
) -> Tokenizer:
    """Returns the run's tokenizer; if there is none, copies the configured one or trains one.

    Args:
        run: the run.
        lines: returns the text to train on.
        symbols: returns pieces that are always in the vocabulary.
        side_lines: returns the text of one side, to train a separate model for each.

    Raises:
        UserError: if the configured tokenizer cannot be used, none can be trained, or that of
            a trained run is gone.
    """
    data, vocab_size = run.config.data, run.config.model.vocab_size
    if run.tokenizer.exists():
        return Tokenizer(run.require_tokenizer())
    if run.checkpoints.state_steps():  # another tokenizer would not fit the weights
        raise UserError(f"{run.tokenizer} is gone. Restore it from a copy of the run.")
    target_model_path(run.tokenizer).unlink(missing_ok=True)  # from another tokenizer
    if data.tokenizer:
        if data.tokenizer_kind != DataConfig.tokenizer_kind:
            logger.warning(
                "data.tokenizer_kind=%s has no effect: the kind of %s is fixed",
                data.tokenizer_kind, data.tokenizer,
            )  # fmt: skip
        configured = Tokenizer(Path(data.tokenizer))
        if side_lines and "target" not in configured.models:
            raise UserError(
                "With data.separate_vocabularies, `data.tokenizer` must have a target model "
                f"beside it. Received: no {target_model_path(configured.path)}."
            )
        configured.copy(run.tokenizer)
    elif side_lines:
        logger.info("training two tokenizers of %s pieces", f"{vocab_size:,}")
        # The target's first: once `run.tokenizer` is there, both are.
        paths = (target_model_path(run.tokenizer), run.tokenizer)
        for side, path in zip(SIDES[::-1], paths, strict=True):
            train_configured_tokenizer(run.config, side_lines(side), path, symbols())
    else:
        logger.info("training a tokenizer of %s pieces", f"{vocab_size:,}")
        train_configured_tokenizer(run.config, lines(), run.tokenizer, symbols())
    return Tokenizer(run.tokenizer)


def train_configured_tokenizer(
    config: Config, lines: Iterable[str], path: Path, symbols: Iterable[str] = ()
) -> None:
    """Trains the tokenizer that a configuration describes; see `train_tokenizer`."""
    train_tokenizer(
        lines,
        path,
        vocab_size=config.model.vocab_size,
        kind=config.data.tokenizer_kind,
        normalization=config.data.normalization or NORMALIZATIONS[0],
        character_coverage=config.data.character_coverage,
        symbols=symbols,
    )


# --- Files of trees or labelled sentences as parallel text ------------------------------------


def require_files(data: DataConfig, task: str, content: str) -> None:
    """Raises UserError unless --train and --valid name files, without languages.

    Args:
        data: section of the configuration.
        task: name that begins the message, such as "Parsing".
        content: description of the files' content.
    """
    if not (data.train and data.valid) or data.source or data.target:
        names = ("train", "valid", "source", "target")
        given = [f"--{name}" for name in names if getattr(data, name)]
        raise UserError(
            f"{task} needs --train FILE and --valid FILE of {content}, and no "
            f"--source or --target. Received: {', '.join(given) or 'none of them'}."
        )
    for name in ("tag", "separate_vocabularies", "join", "caps"):
        if value := getattr(data, name):
            raise UserError(f"data.{name} is only for --task translation. Received: {value}.")


def write_parallel_text(
    data: DataConfig,
    folder: Path,
    sides: tuple[str, str],
    read_pairs: Callable[[Path], Iterator[tuple[str, str]]],
    *,
    may_write: bool = True,
) -> DataConfig:
    """Writes data files into `folder` as parallel text; returns the data with the new paths.

    Line n holds the n-th pair of its file. Files that already have the right content are not
    touched.

    Args:
        data: settings whose `train` and `valid` name files.
        folder: the folder to write into.
        sides: the names of source and target.
        read_pairs: reads the pairs of a file.
        may_write: False to only return the paths.

    Raises:
        UserError: if a file cannot be read or parsed.
    """

    def write(file: Path, prefix: Path) -> str:
        return write_pairs(prefix, sides, read_pairs(file)) if may_write else str(prefix)

    train, valid = (
        tuple(
            write(Path(name), folder / f"{split}-{number}")
            for number, name in enumerate(getattr(data, split), start=1)
        )
        for split in ("train", "valid")
    )
    return dataclasses.replace(data, train=train, valid=valid, source=sides[0], target=sides[1])
