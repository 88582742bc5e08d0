"""Translation: learns from parallel text, scored by BLEU; which test lines a run has seen."""

import dataclasses
import functools
import itertools
import logging
import math
import numbers
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from tf_transformer.base.errors import UserError, quoted
from tf_transformer.base.files import replacing
from tf_transformer.base.output import NamedProgress
from tf_transformer.config import EOS_ID, Config, DataConfig
from tf_transformer.data import builtin
from tf_transformer.data.augmentation import FORMS, Augmentation, pairs_in_form
from tf_transformer.data.batches import make_dataset
from tf_transformer.data.encoded_corpus import (
    INFO_FILE,
    EncodedCorpus,
    encode_corpus,
    fingerprint,
)
from tf_transformer.data.plan import BatchPlan, Mixture
from tf_transformer.data.subword_sampling import SubwordSampler
from tf_transformer.data.text import (
    ROLES,
    SIDES,
    Role,
    SideName,
    all_pairs,
    corpora,
    identity,
    read_some_pairs,
    text_files,
)
from tf_transformer.data.tokenizer import Tokenizer
from tf_transformer.data.vocabulary import (
    kept_whole,
    require_joinable,
    require_whole,
    symbol_pieces,
    symbols_of,
)
from tf_transformer.decoding.engine import GraphEngine
from tf_transformer.decoding.interface import Translation
from tf_transformer.decoding.rules import Rule
from tf_transformer.evaluation import DevText, make_metric, score_translations, tokenizer_for
from tf_transformer.models.token_model import TokenModel
from tf_transformer.models.transformer import build_model
from tf_transformer.run import Run
from tf_transformer.run.run_tokenizer import load_tokenizer
from tf_transformer.terms.slot_sampler import SlotSampler
from tf_transformer.training.fine_tuning import begin, record_positions
from tf_transformer.training.trainer import Result
from tf_transformer.translation.translator import Translator

logger = logging.getLogger(__name__)

SAMPLES = 5
MOST_SHAPES = 12  # since XLA compiles each. On Europarl, 4 % more steps than with 20 lengths


Score = Callable[[list[str], list[Translation], list[str]], float]


class Functions(NamedTuple):
    """A user's own functions for the dev text: its score, higher is better, and rules."""

    score: Score | None = None  # of sources, their translations and the references
    rules: tuple[Rule, ...] = ()  # of the search

    @property
    def names(self) -> dict[str, Any]:
        """Names of the functions, which the run records; empty without any."""
        rules = [type(rule).__name__ for rule in self.rules]
        named = {"score": self.score and self.score_name, "rules": rules}
        return {what: names for what, names in named.items() if names}

    @property
    def score_name(self) -> str:
        """Name of the score."""
        return getattr(self.score, "__name__", type(self.score).__name__)

    def score_of(self, score: Score, *texts: Any) -> float:
        """Returns what the score gives; UserError unless it is a finite number."""
        value = score(*texts)
        if not (isinstance(value, numbers.Real) and math.isfinite(value)):
            raise UserError(
                f"`score` must return a finite number. Received: {quoted(value)} from "
                f"{self.score_name}."
            )
        return float(value)


NO_FUNCTIONS = Functions()


class TranslationTask:
    """Data, model and dev score of a run: the `Task` that `training.trainer` knows.

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

    shapes: Sequence[tuple[int, int]]

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
    def read_dev_text(run: Run, source: Path, reference: Path) -> DevText:
        """Reads the pairs to be scored by BLEU; see `read_some_pairs` for errors."""
        sources, references = zip(*read_some_pairs(source, reference), strict=True)
        tokenize = tokenizer_for(run.config.data.bleu_tokenizer, references)
        metric = make_metric("bleu", [references], tokenize)
        return DevText(sources, metric)

    def __init__(
        self,
        run: Run,
        progress: NamedProgress,
        *,
        may_encode: bool = True,
        functions: Functions = NO_FUNCTIONS,
    ) -> None:
        """Prepares all that training needs, in steps, each of which needs those before.

        Whatever the run lacks is written into it: the comments name the files. A worker that
        may not encode reads the corpora that the chief tokenised. Raises UserError if the data
        cannot be read, or differs from those.
        """
        self.run, self.may_encode, self.functions = run, may_encode, functions
        # Text: data/builtin.
        data = self.data = self.effective_data(run, may_write=may_encode)
        dev_files = text_files(run.config.data, "valid") or text_files(data, "valid")
        self.dev_set = run.dev_set(identity(dev_files))
        self.dev_pairs = list(all_pairs(corpora(data.valid, data)))
        # Ids: tokenizer.model, data/train, data/valid, data/train-forms.
        self.tokenizer = self._load_tokenizer()
        self.train = self._encoded("train", progress)
        self.valid = self._encoded("valid", progress)
        self.forms = self._encoded("train", progress, *FORMS) if data.caps else self.train
        # What changes pairs and draws them, each a function of seed and step: data/train-slots.
        rate, seed = data.subword_sampling, run.config.training.seed
        self.sampler = SubwordSampler(self.forms, self.tokenizer, rate, seed) if rate else None
        self.slots = self._slot_sampler(progress) if data.slots else None
        self.mixture = Mixture(self.train.sizes, data.mix, seed) if data.mix else None
        # Batches.
        plan = functools.partial(
            BatchPlan,
            batch_tokens=run.config.training.batch_tokens,
            max_length=data.max_length,
            seed=seed,
        )
        self.plan, self.valid_plan = self._training_plan(plan), plan(*_lengths(self.valid))
        self.shapes, self.steps_per_epoch = self.plan.shapes, self.plan.steps_per_epoch
        self.validation_steps = self.valid_plan.steps_per_epoch
        # How many positions are trained: data/longest-joined, config.json.
        record_positions(run, self._record_longest(), is_chief=may_encode)
        # What the weights of another run were scored on.
        source = run.config.training.init_from
        before = Run.open(source) if source else run
        self._old_dev = _old_dev_pairs(run, before, self.dev_pairs, may_encode)
        olds = [target for _, target in self._old_dev]
        self._old_tokenizer = tokenizer_for(before.config.data.bleu_tokenizer, olds)

    def _load_tokenizer(self) -> Tokenizer:
        """Loads or trains the tokenizer; UserError if it splits a symbol, or cannot join."""
        by_side = self._side_text if self.data.separate_vocabularies else None
        symbols = kept_whole(self.data)
        tokenizer = load_tokenizer(
            self.run, self._vocabulary_text, symbol_pieces(symbols), by_side
        )
        require_whole(symbols, self.run.tokenizer)
        for model in tokenizer.models.values() if self.data.join else ():
            require_joinable(model)
        return tokenizer

    def _vocabulary_text(self) -> Iterator[str]:
        return itertools.chain.from_iterable(map(self._side_text, SIDES))

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

    def _encoded(self, role: Role, progress: NamedProgress, *forms: int) -> EncodedCorpus:
        data, name = self.data, f"{role}-forms" if forms else role
        texts, symbols = corpora(getattr(data, role), data), symbols_of(data)
        folder = self.run.data / name
        settings = f"{data.max_length} {data.max_ratio}"
        settings += "".join(f" {i}:{text.tag}" for i, text in enumerate(texts) if text.tag)
        settings += f" forms but of {symbols}" * bool(forms)
        models = self.tokenizer.models.values()
        made_from = fingerprint(text_files(data, role), models, settings)
        try:
            corpus = EncodedCorpus.open(folder)
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
        pairs = [pairs_in_form(text, form, symbols) for form in forms for text in texts]
        return encode_corpus(
            pairs or [text.pairs() for text in texts],
            self.tokenizer,
            max_length=data.max_length,
            max_ratio=data.max_ratio,
            directory=folder,
            fingerprint=made_from,
            progress=functools.partial(progress, f"tokenising {name}"),
        )

    def _slot_sampler(self, progress: NamedProgress) -> SlotSampler:
        return SlotSampler.mined(
            self.forms,
            self.tokenizer,
            self.run.data / "train-slots",
            self.data.slots,
            self.run.config.training.seed,
            functools.partial(progress, "aligning words"),
        )

    def _training_plan(self, plan: Callable[..., BatchPlan]) -> BatchPlan:
        data, lengths, augmentation = self.data, _lengths(self.forms), None
        if self.sampler:
            lengths = [self.sampler.lengths(side, data.max_length) for side in SIDES]
        if data.join or data.caps:
            tags = self.tokenizer.ids([text.tag for text in corpora(data.train, data)])
            augmentation = Augmentation(data, self.train.sizes, [*map(len, tags)])
        most_shapes = MOST_SHAPES if self.run.config.training.jit_compile else None
        more = {"augmentation": augmentation, "most_shapes": most_shapes}
        return plan(*lengths, mixture=self.mixture, **more)

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

    def describe(self) -> str:
        """Describes the corpora and their batches, for the console."""
        train, valid = self.train.report.summary(), self.valid.report.summary()
        mix = [self.mixture.summary(self.run.config.data.train)] if self.mixture else []
        sampling = [self.sampler.summary()] if self.sampler else []
        sampling += [self.slots.summary()] if self.slots else []
        lines = [f"train: {train}", *mix, *sampling, f"valid: {valid}", self.plan.summary()]
        return "\n".join(lines)

    def evaluator(self, model: TokenModel) -> Callable[[], Result]:
        """Returns a function that translates the dev set with the model's current weights."""
        # With one stream, the last bits of the scores do not depend on the number of cores.
        engine = GraphEngine(model, self.tokenizer, streams=1)
        translator = Translator(decoding=self.run.config.decoding, engine=engine)
        tokenize = self.run.config.data.bleu_tokenizer
        sources, references = ([pair[side] for pair in self.dev_pairs] for side in (0, 1))
        functions = self.functions
        search = functools.partial(translator.translate, rules=functions.rules)

        def evaluate() -> Result:
            translations = search(sources)
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
            if functions.score:
                texts = [*sources], [*translations], [*references]  # copies
                value = functions.score_of(functions.score, *texts)
                metrics["score"] = value
                headline += f"  {functions.score_name} {value:.4g}"
                lines.append(f"dev {functions.score_name} {value:.4g}")
            if self._old_dev:
                olds, answers = zip(*self._old_dev, strict=True)
                found = search(olds)
                old = score_translations(found, answers, tokenize=self._old_tokenizer).bleu
                metrics["old_bleu"] = old.value
                headline += f"  old dev set {old.value:.2f}"
                lines.append(f"old dev set {old}")
            example = sources[0] if sources else "Your sentence."
            return Result(metrics, headline, example, lines)

        return evaluate

    def build_model(self) -> TokenModel:
        """Builds the model; a new run may take its initial weights from another run."""
        model = build_model(self.run.config)
        begin(self.run, model, self.tokenizer, is_chief=self.may_encode)
        return model

    def training_data(
        self, start_step: int, replicas: Sequence[int] = (0,), num_replicas: int = 1
    ) -> tf.data.Dataset:
        """Returns an endless dataset of batches, starting at `start_step`."""
        put_slots = self.slots.put if self.slots else None
        return make_dataset(
            self.forms, self.plan, self.sampler, put_slots,
            start_step=start_step, replicas=replicas, num_replicas=num_replicas,
        )  # fmt: skip

    def validation_data(
        self, replicas: Sequence[int] = (0,), num_replicas: int = 1
    ) -> tf.data.Dataset:
        """Returns the batches of one pass over the dev set."""
        return make_dataset(
            self.valid, self.valid_plan, num_steps=self.validation_steps,
            replicas=replicas, num_replicas=num_replicas,
        )  # fmt: skip


def _lengths(corpus: EncodedCorpus) -> list[np.ndarray]:
    return [corpus.lengths(side) for side in SIDES]


def _old_dev_pairs(
    run: Run, before: Run, dev: list[tuple[str, str]], may_write: bool
) -> list[tuple[str, str]]:
    """Reads the dev set of the run that training starts from, if it differs from `dev`."""
    if before is run or before.has_no_text:
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


def overlaps(
    run: Run,
    sources: Sequence[str],
    references: Sequence[Sequence[str]],
    tag: str | None = None,
) -> dict[Role, dict[str, int]]:
    """Counts the test sentences that occur in the run's training text or dev text.

    The counts of each are those of "sources" and of "references".

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
    result: dict[Role, dict[str, int]] = {}
    for role in ROLES:
        corpus = EncodedCorpus.open(run.data / role)
        targets = [_seen(corpus, "target", rows) for rows in target_ids]
        result[role] = {
            "sources": int(_seen(corpus, "source", source_ids).sum()),
            "references": int(np.any(targets, axis=0).sum()),
        }
    return result


def describe_overlaps(overlaps: dict[Role, dict[str, int]], number: int) -> str:
    """Describes the overlaps of `number` test sentences; "" if there are none."""
    parts = [
        f"{seen['sources']:,} sources and {seen['references']:,} references are in the "
        f"{ROLES[role]}"
        for role, seen in overlaps.items()
        if any(seen.values())
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
