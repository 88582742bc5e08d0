"""The base class of the tasks: what a run learns from, as batches, and its model."""

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
from tf_transformer.base.output import NamedProgress
from tf_transformer.config import Config, DataConfig
from tf_transformer.data.augmentation import FORMS, Augmentation, pairs_in_form
from tf_transformer.data.batches import make_dataset
from tf_transformer.data.encoded_corpus import (
    INFO_FILE,
    EncodedCorpus,
    encode_corpus,
    fingerprint,
)
from tf_transformer.data.mixture import Mixture
from tf_transformer.data.plan import BatchPlan
from tf_transformer.data.slots import SlotSampler
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
from tf_transformer.data.tokenizer import Tokenizer
from tf_transformer.data.vocabulary import (
    kept_whole,
    require_joinable,
    require_whole,
    symbol_pieces,
    symbols_of,
)
from tf_transformer.evaluation import DevText
from tf_transformer.models.token_model import TokenModel
from tf_transformer.models.transformer import build_model
from tf_transformer.run import Run
from tf_transformer.run.run_tokenizer import load_tokenizer
from tf_transformer.training.fine_tuning import begin, record_positions
from tf_transformer.training.trainer import Result, compiles

logger = logging.getLogger(__name__)

MOST_SHAPES = 12  # since XLA compiles each. On Europarl, 4 % more steps than with 20 lengths


class SequenceTask:
    """Data and model of a run: the `Task` that `training.trainer` knows, for pairs of text.

    A task overrides what differs from translation without tags:

    - `settled`, `effective_data` and `read_dev_text`, about files;
    - `prose` and `vocabulary_sides`, about what kind of text its sides are;
    - `corpus_class`, `_encoder` and `_encoding_settings`, about how pairs are encoded, and
      `_symbols`, the pieces that its vocabulary must have;
    - `make_batches` and `_new_model`, about the input of the model, and the model;
    - `evaluator`, which has no default.

    Attributes:
        data: the run's data as parallel text.
        dev_set: identity of the dev set.
        dev_pairs: its pairs, as text.
        tokenizer: of the run.
        train, valid: the encoded corpora.
        forms: what batches are made of: `train`, or its pairs in all their forms.
        mixture, sampler: see `data.mix` and `data.subword_sampling`; None without.
        plan, valid_plan: the batches of `forms` and of `valid`.
    """

    prose = False  # whether both sides of its parallel text are natural-language sentences
    corpus_class: type[EncodedCorpus] = EncodedCorpus
    make_batches: Callable[..., tf.data.Dataset] = staticmethod(make_dataset)
    vocabulary_sides: Sequence[SideName] = SIDES  # whose text trains a tokenizer
    shapes: Sequence[tuple[int, int]]

    @staticmethod
    def settled(config: Config) -> Config:
        """Returns a new run's configuration with what depends on its text."""
        return config

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

    def __init__(self, run: Run, progress: NamedProgress, *, may_encode: bool = True) -> None:
        """Prepares text, tokenizer, corpora and batches, in this order: each needs the former.

        Whatever the run lacks is written into it: parallel text, the tokenizer, the encoded
        corpora, and last, in config.json, how many positions are trained. A worker that may not
        encode reads the corpora that the chief tokenised. Raises UserError if the data cannot
        be read, or differs from those.
        """
        self.run, self.may_encode = run, may_encode
        data = self.data = self.effective_data(run, may_write=may_encode)
        dev_files = text_files(run.config.data, "valid") or text_files(data, "valid")
        self.dev_set = run.dev_set(identity(dev_files))
        self.dev_pairs = list(all_pairs(corpora(data.valid, data)))
        self.tokenizer = self._load_tokenizer()

        self.train = self._encoded("train", progress)
        self.valid = self._encoded("valid", progress)
        self.forms = self._encoded("train", progress, *FORMS) if data.caps else self.train

        rate, seed = data.subword_sampling, run.config.training.seed
        self.sampler = SubwordSampler(self.forms, self.tokenizer, rate, seed) if rate else None
        self.slots = self._slot_sampler(progress) if data.slots else None
        self.mixture = Mixture(self.train.sizes, data.mix, seed) if data.mix else None
        most_shapes = MOST_SHAPES if compiles(run.config.training) else None
        draws = {"mixture": self.mixture, "augmentation": self._augmentation()}
        self.plan = self._plan(self._training_lengths(), **draws, most_shapes=most_shapes)
        self.valid_plan = self._plan(_lengths(self.valid))
        self.shapes, self.steps_per_epoch = self.plan.shapes, self.plan.steps_per_epoch
        self.validation_steps = self.valid_plan.steps_per_epoch
        record_positions(run, self._record_longest(), is_chief=may_encode)

    def _load_tokenizer(self) -> Tokenizer:
        """Loads or trains the tokenizer; UserError if it splits a symbol, or cannot join."""
        by_side = self._side_text if self.data.separate_vocabularies else None
        tokenizer = load_tokenizer(self.run, self._vocabulary_text, self._symbols, by_side)
        require_whole(kept_whole(self.data), self.run.tokenizer)
        for model in tokenizer.models.values() if self.data.join else ():
            require_joinable(model)
        return tokenizer

    def _record_longest(self) -> list[int]:
        """Returns the lengths of the longest source and target; records a joined source."""
        sides = self.forms.source_lengths, self.forms.target_lengths
        longest = [int(side.max()) for side in sides]
        if self.data.join:
            stretch = self.sampler.stretch if self.sampler else 1  # of the lengths in the plan
            joined = [int(length / stretch) for length in self.plan.longest]
            longest = [max(both) for both in zip(longest, joined, strict=True)]
            if self.may_encode:
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
        if not self.data.caps:
            return
        # Every n-th line, beginning with another for each form: as many as training has.
        step = round(len(FORMS[1:]) / self.data.caps)
        for text, form in itertools.product(texts, FORMS[1:]):
            pairs = pairs_in_form(text, form, symbols_of(self.data))
            chosen = itertools.islice(pairs, form - 1, None, step)
            yield from (pair[2 + index] for pair in chosen)

    def _symbols(self) -> Iterable[str]:
        """Returns pieces that are always in the vocabulary: symbols and tags."""
        return symbol_pieces(kept_whole(self.data))

    def _slot_sampler(self, progress: NamedProgress) -> SlotSampler:
        return SlotSampler.mined(
            self.forms,
            self.tokenizer,
            self.run.data / "train-slots",
            self.data.slots,
            self.run.config.training.seed,
            functools.partial(progress, "aligning words"),
        )

    def _encoded(self, role: Role, progress: NamedProgress, *forms: int) -> EncodedCorpus:
        texts = corpora(getattr(self.data, role), self.data)
        name = f"{role}-forms" if forms else role
        folder = self.run.data / name
        paths, models = text_files(self.data, role), self.tokenizer.models.values()
        tags = "".join(f" {number}:{text.tag}" for number, text in enumerate(texts) if text.tag)
        symbols = symbols_of(self.data)
        tags += f" forms but of {symbols}" if forms else ""
        made_from = fingerprint(paths, models, self._encoding_settings() + tags)
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

    def _encoding_settings(self) -> str:
        """Returns the settings that encoding depends on, besides text and tokenizer."""
        return f"{self.data.max_length} {self.data.max_ratio}"

    def _encoder(self) -> Callable[..., EncodedCorpus]:
        """Returns a function that encodes texts, with the length limits of the data."""
        return functools.partial(
            encode_corpus, max_length=self.data.max_length, max_ratio=self.data.max_ratio
        )

    def _training_lengths(self) -> list[np.ndarray]:
        if self.sampler is None:
            return _lengths(self.forms)
        limit = self.data.max_length
        return [self.sampler.lengths(side, limit) for side in self.forms.text_sides]

    def _plan(self, lengths: list[np.ndarray], **options: Any) -> BatchPlan:
        training = self.run.config.training
        return BatchPlan(
            *lengths,
            batch_tokens=training.batch_tokens,
            max_length=self.data.max_length,
            seed=training.seed,
            **options,
        )

    def describe(self) -> str:
        """Describes the corpora and their batches, for the console."""
        train, valid = self.train.report.summary(), self.valid.report.summary()
        mix = [self.mixture.summary(self.run.config.data.train)] if self.mixture else []
        sampling = [self.sampler.summary()] if self.sampler else []
        sampling += [self.slots.summary()] if self.slots else []
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
        share: dict[str, Any] = {"replicas": replicas, "num_replicas": num_replicas}
        share["start_step"] = start_step
        if self.slots:
            share["slots"] = self.slots
        return self.make_batches(self.forms, self.plan, self.sampler, **share)

    def validation_data(
        self, replicas: Sequence[int] = (0,), num_replicas: int = 1
    ) -> tf.data.Dataset:
        """Returns the batches of one pass over the dev set."""
        share = {"replicas": replicas, "num_replicas": num_replicas}
        steps = self.validation_steps
        return self.make_batches(self.valid, self.valid_plan, num_steps=steps, **share)


def _lengths(corpus: EncodedCorpus) -> list[np.ndarray]:
    return [corpus.lengths(side) for side in corpus.text_sides]


# --- Files of trees or labelled sentences as parallel text -----------------------------


def write_parallel_text(
    data: DataConfig,
    folder: Path,
    sides: tuple[str, str],
    read_pairs: Callable[[Path], Iterator[tuple[str, str]]],
    *,
    may_write: bool = True,
) -> DataConfig:
    """Writes data files into `folder` as parallel text; returns the data with the new paths.

    Line n holds the n-th pair of its file, as `read_pairs` reads it. Files that already have
    the right content are not touched; without `may_write` none is. `sides` are the names of
    source and target. Raises UserError if a file cannot be read or parsed.
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
