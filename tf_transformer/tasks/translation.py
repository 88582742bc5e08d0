"""Translation: what the trainer needs to know of it."""

import dataclasses
import hashlib
import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import keras
import tensorflow as tf

from tf_transformer.config import Config, DataConfig, DecodingConfig
from tf_transformer.data import toy
from tf_transformer.data.batching import BatchPlan, bucket_boundaries, make_dataset
from tf_transformer.data.corpus import read_lines, read_pairs, resolve_prefixes
from tf_transformer.data.encoded import EncodedCorpus, encode_corpus
from tf_transformer.data.tokenizer import Tokenizer, train_tokenizer
from tf_transformer.decoding.translator import Translator
from tf_transformer.errors import UserError
from tf_transformer.evaluation.bleu import Score, bleu
from tf_transformer.files import replacing
from tf_transformer.models.transformer import Transformer
from tf_transformer.run import Run
from tf_transformer.training.checkpoints import load_weights

logger = logging.getLogger(__name__)

Files = tuple[list[Path], list[Path]]


@dataclasses.dataclass(frozen=True)
class Sample:
    """A dev sentence, its reference and what the model makes of it."""

    source: str
    reference: str
    translation: str


@dataclasses.dataclass(frozen=True)
class DevResult:
    """The dev set, translated: its BLEU, the share translated exactly, some samples."""

    score: Score
    exact: float
    samples: list[Sample]


def effective_data(run: Run) -> DataConfig:
    """The run's data, or the built-in corpus, written into the run, if it names none."""
    data = run.config.data
    if data.train or data.valid:
        return data
    prefixes = toy.write_corpus(run.data / "builtin")
    return dataclasses.replace(
        data,
        train=(str(prefixes["train"]),),
        valid=(str(prefixes["dev"]),),
        source=toy.LANGUAGES[0],
        target=toy.LANGUAGES[1],
    )


def resolve_files(prefixes: tuple[str, ...], data: DataConfig) -> Files:
    """The source and target files of some prefixes; UserError if one is missing."""
    return resolve_prefixes(prefixes, data.source), resolve_prefixes(prefixes, data.target)


def check_config(config: Config) -> None:
    """Refuses missing files and settings that contradict each other, before anything else."""
    data = config.data
    longest = bucket_boundaries(data.max_length)[-1]
    if config.model.positions == "learned" and config.model.max_length < longest:
        raise UserError(
            "`model.max_length` must be at least `data.max_length`, a multiple of 4, where "
            f"positions are learned. Received: {config.model.max_length} and {data.max_length}."
        )
    given = [name for name in ("train", "valid", "source", "target") if getattr(data, name)]
    if not given:
        return
    if len(given) < 4:
        raise UserError(
            "Own data needs --train PREFIX --valid PREFIX --source LANG --target LANG, and the "
            f"built-in corpus none of them. Received: --{', --'.join(given)}."
        )
    if data.source == data.target:
        raise UserError(f"--source and --target must differ. Received: {data.source!r} twice.")
    resolve_files(data.train, data)
    resolve_files(data.valid, data)


class TranslationTask:
    """Data, model and dev score of a translation run."""

    def __init__(self, run: Run, progress: Callable[[str, int], None]) -> None:
        """Trains or loads the tokenizer and tokenises the corpora, unless `run` has them.

        Args:
            run: the run directory.
            progress: called with what is being done and how much of it is done.
        """
        self.run = run
        self.data = effective_data(run)
        self.tokenizer = load_tokenizer(run, lambda: _training_lines(self.data))
        self.train = self._encoded("train", self.data.train, progress)
        self.valid = self._encoded("valid", self.data.valid, progress)
        self.plan = self._plan(self.train)
        self.valid_plan = self._plan(self.valid)
        self._dev = list(read_pairs(*resolve_files(self.data.valid, self.data)))

    def _encoded(self, name: str, prefixes: tuple[str, ...], progress) -> EncodedCorpus:
        files = resolve_files(prefixes, self.data)
        fingerprint = _fingerprint(files, self.tokenizer.model_bytes, self.data)
        folder = self.run.data / name
        if folder.exists():
            corpus = EncodedCorpus.open(folder)
            if corpus.fingerprint == fingerprint:
                return corpus
        return encode_corpus(
            read_pairs(*files),
            self.tokenizer,
            folder,
            max_length=self.data.max_length,
            max_ratio=self.data.max_ratio,
            fingerprint=fingerprint,
            progress=lambda done: progress(f"tokenising {name}", done),
        )

    def _plan(self, corpus: EncodedCorpus) -> BatchPlan:
        training = self.run.config.training
        return BatchPlan(
            corpus.source_lengths,
            corpus.target_lengths,
            batch_tokens=training.batch_tokens,
            max_length=self.data.max_length,
            seed=training.seed,
        )

    def describe(self) -> str:
        """What was read, dropped and how it is batched, for the console."""
        return "\n".join(
            [
                f"train: {self.train.report.summary()}",
                f"valid: {self.valid.report.summary()}",
                self.plan.summary(),
            ]
        )

    def build_model(self) -> Transformer:
        return build_model(self.run.config)

    def training_data(self, start_step: int) -> tf.data.Dataset:
        """Batches from `start_step` on, without end."""
        return make_dataset(self.train, self.plan, start_step=start_step)

    def validation_data(self) -> tf.data.Dataset:
        """The dev set once."""
        steps = self.valid_plan.steps_per_epoch
        return make_dataset(self.valid, self.valid_plan, num_steps=steps)

    def evaluator(self, model: keras.Model) -> Callable[[], DevResult]:
        """A function that translates the dev set with the model's current weights."""
        translator = Translator(model, self.tokenizer, self.run.config.decoding)
        sources = [source for source, _ in self._dev]
        references = [reference for _, reference in self._dev]

        def evaluate() -> DevResult:
            translations = [found[0].text for found in translator.translate(sources)]
            equal = sum(t == r for t, r in zip(translations, references, strict=True))
            triples = zip(sources[:5], references, translations, strict=False)
            return DevResult(
                bleu(translations, references),
                equal / len(references),
                [Sample(*triple) for triple in triples],
            )

        return evaluate


def build_model(config: Config) -> Transformer:
    """The model of a configuration, in its precision."""
    return Transformer(
        **dataclasses.asdict(config.model), dtype=config.training.precision, name="transformer"
    )


def load_translator(
    run: Run, checkpoint: str, decoding: DecodingConfig, num_hypotheses: int = 1
) -> Translator:
    """A translator with the weights of a checkpoint: best, average, last or a step.

    It computes in float32, whatever the precision of training was.
    """
    path = run.checkpoints.find(checkpoint)
    if not run.tokenizer.exists():
        raise UserError(f"{run.path} has no tokenizer.model: its training never began.")
    model = build_model(run.config.replace({"training.precision": "float32"}))
    load_weights(path, model)
    return Translator(model, Tokenizer(run.tokenizer), decoding, num_hypotheses)


def load_tokenizer(run: Run, lines: Callable[[], Iterator[str]]) -> Tokenizer:
    """The run's tokenizer: its own, else the configured one, else one trained on `lines`."""
    data, vocab_size = run.config.data, run.config.model.vocab_size
    if not run.tokenizer.exists():
        if data.tokenizer:
            with replacing(run.tokenizer) as temporary:
                temporary.write_bytes(Tokenizer(Path(data.tokenizer)).model_bytes)
        else:
            logger.info("training a tokenizer of %s pieces", f"{vocab_size:,}")
            kind = data.tokenizer_kind
            train_tokenizer(lines(), run.tokenizer, vocab_size=vocab_size, kind=kind)
    return Tokenizer(run.tokenizer)


def _training_lines(data: DataConfig) -> Iterator[str]:
    for files in resolve_files(data.train, data):
        for file in files:
            yield from read_lines(file)


def _fingerprint(files: Files, model_bytes: bytes, data: DataConfig) -> str:
    """Names the text files (path, size, time), the tokenizer and the filters."""
    digest = hashlib.sha256(model_bytes)
    for file in (*files[0], *files[1]):
        state = file.stat()
        digest.update(f"{file.resolve()} {state.st_size} {state.st_mtime_ns}\n".encode())
    digest.update(f"{data.max_length} {data.max_ratio}".encode())
    return digest.hexdigest()
