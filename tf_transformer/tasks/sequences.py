"""What tasks that learn from text share: tokenizer, encoded corpora, batches, model."""

import functools
import logging
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import tensorflow as tf

from tf_transformer.config import NORMALIZATIONS, Config, DataConfig, DecodingConfig
from tf_transformer.data.batching import BatchPlan, make_dataset
from tf_transformer.data.corpus import read_lines, read_pairs, resolve_prefixes
from tf_transformer.data.corpus_info import INFO_FILE
from tf_transformer.data.encoded import EncodedCorpus, encode_corpus
from tf_transformer.data.fingerprints import fingerprint, old_fingerprint
from tf_transformer.data.texts import ROLES, Role, Text, identity, text_files
from tf_transformer.data.tokenizer import Tokenizer, target_model_path, train_tokenizer
from tf_transformer.decoding.ensemble import Ensemble
from tf_transformer.decoding.shortlist import Shortlist
from tf_transformer.decoding.translator import Translator
from tf_transformer.errors import UserError
from tf_transformer.models.token_model import TokenModel
from tf_transformer.models.transformer import Transformer
from tf_transformer.run import Run
from tf_transformer.run.checkpoints import load_weights
from tf_transformer.tasks.positions import position_limits, record_positions
from tf_transformer.tasks.record import Progress

logger = logging.getLogger(__name__)

Files = tuple[list[Path], list[Path]]


def resolve_files(prefixes: tuple[str, ...], data: DataConfig) -> Files:
    """The source and target files of some prefixes; UserError if one is missing."""
    return resolve_prefixes(prefixes, data.source), resolve_prefixes(prefixes, data.target)


class SequenceTask:
    """Data and model of a run that learns from text; a subclass has its dev score.

    The methods that begin with an underscore are what a subclass may replace: here they are
    those of text to text.
    """

    corpus_class = EncodedCorpus

    def __init__(
        self,
        run: Run,
        data: DataConfig,
        progress: Progress,
        *,
        may_encode: bool = True,
    ) -> None:
        """Trains or loads the tokenizer and tokenises the corpora, unless `run` has them.

        Args:
            run: the run directory.
            data: its parallel text.
            progress: called with what is being done and how much of it is done.
            may_encode: False for a worker that takes what the chief has tokenised.

        Raises:
            UserError: if the data cannot be read, or is not what the chief has tokenised.
        """
        self.run = run
        self.may_encode = may_encode
        self.data = data
        self.texts = {role: self._texts(role) for role in ROLES}
        self.tokenizer = load_tokenizer(run, self._vocabulary_text, self._symbols)
        self.train = self._encoded("train", self.data.train, progress)
        self.valid = self._encoded("valid", self.data.valid, progress)
        self.plan = self._plan(self.train)
        self.valid_plan = self._plan(self.valid)
        if may_encode:
            record_positions(run, self.train)

    def _vocabulary_text(self) -> Iterator[str]:
        """What a tokenizer is trained on: both sides of the training text."""
        for files in resolve_files(self.data.train, self.data):
            for file in files:
                yield from read_lines(file)

    def _symbols(self) -> Iterable[str]:
        """Words that are single pieces, whatever the text: none."""
        return ()

    def _encoded(self, name: str, prefixes: tuple[str, ...], progress) -> EncodedCorpus:
        files = resolve_files(prefixes, self.data)
        folder = self.run.data / name
        paths, models = [*files[0], *files[1]], self.tokenizer.models.values()
        texts = [Text.of(path, self.texts[name]) for path in paths]
        made_from = fingerprint(texts, models, self._settings())
        try:
            corpus = self.corpus_class.open(folder)
            if corpus.fingerprint in (
                made_from, old_fingerprint(paths, models, self._settings())
            ):  # fmt: skip
                return corpus
            reason = "encoded from other text or with other settings"
        except UserError as error:
            reason = str(error)
        if not self.may_encode:
            raise UserError(
                f"{folder} is not of the text that this worker sees. All workers need the same "
                f"files ({reason})."
            )
        if folder.exists():
            logger.warning("%s is made again from the text: %s", folder, reason)
        if not (folder / INFO_FILE).exists():
            shutil.rmtree(folder, ignore_errors=True)
        report = functools.partial(progress, f"tokenising {name}")
        return self._encode(files, folder, made_from, report)

    def _texts(self, role: Role) -> list[Text]:
        """The user's files of text; of the built-in corpus those written into the run."""
        files = text_files(self.run.config.data, role) or text_files(self.data, role)
        known = self.run.checksums.texts(role) or ()
        return [Text.of(file, known) for file in files]

    @property
    def dev_set(self) -> str:
        """Names the content of the dev text."""
        return identity(self.texts["valid"])

    def _settings(self) -> str:
        """On what, beside text and tokenizer, the encoded corpora depend."""
        return f"{self.data.max_length} {self.data.max_ratio}"

    def _encode(
        self, files: Files, folder: Path, fingerprint: str, progress: Callable[[int], None]
    ) -> EncodedCorpus:
        return encode_corpus(
            read_pairs(*files),
            self.tokenizer,
            folder,
            max_length=self.data.max_length,
            max_ratio=self.data.max_ratio,
            fingerprint=fingerprint,
            progress=progress,
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

    def _dataset(self, corpus: EncodedCorpus, plan: BatchPlan, **options) -> tf.data.Dataset:
        return make_dataset(corpus, plan, **options)

    def build_model(self) -> TokenModel:
        model = build_model(self.run.config)
        model.position_limits = position_limits(self.run)
        return model

    @property
    def steps_per_epoch(self) -> int:
        return self.plan.steps_per_epoch

    @property
    def shapes(self) -> list[tuple[int, int]]:
        return self.plan.shapes

    @property
    def validation_steps(self) -> int:
        return self.valid_plan.steps_per_epoch

    def training_data(
        self, start_step: int, replicas: Sequence[int] = (0,), num_replicas: int = 1
    ) -> tf.data.Dataset:
        """Batches from `start_step` on, without end."""
        return self._dataset(
            self.train,
            self.plan,
            start_step=start_step,
            replicas=replicas,
            num_replicas=num_replicas,
        )

    def validation_data(
        self, replicas: Sequence[int] = (0,), num_replicas: int = 1
    ) -> tf.data.Dataset:
        """The dev set once."""
        return self._dataset(
            self.valid,
            self.valid_plan,
            num_steps=self.validation_steps,
            replicas=replicas,
            num_replicas=num_replicas,
        )


def build_model(config: Config, precision: str | None = None) -> Transformer:
    """The model of a configuration, in the precision of its training unless one is given."""
    dtype = precision or config.training.precision
    return Transformer(config.model, dtype=dtype, name="transformer")


def load_tokenizer(
    run: Run, lines: Callable[[], Iterator[str]], symbols: Callable[[], Iterable[str]] = tuple
) -> Tokenizer:
    """The run's tokenizer: its own, else the configured one, else one trained on `lines`."""
    data, vocab_size = run.config.data, run.config.model.vocab_size
    if run.tokenizer.exists():
        return Tokenizer(run.require_tokenizer())
    target_model_path(run.tokenizer).unlink(missing_ok=True)  # of another tokenizer
    if data.tokenizer:
        if data.tokenizer_kind != DataConfig.tokenizer_kind:
            logger.warning(
                "data.tokenizer_kind=%s has no effect: %s has a kind of its own",
                data.tokenizer_kind, data.tokenizer,
            )  # fmt: skip
        Tokenizer(Path(data.tokenizer)).copy(run.tokenizer)
    else:
        logger.info("training a tokenizer of %s pieces", f"{vocab_size:,}")
        train_tokenizer(
            lines(),
            run.tokenizer,
            vocab_size=vocab_size,
            kind=data.tokenizer_kind,
            normalization=data.normalization or NORMALIZATIONS[0],
            character_coverage=data.character_coverage,
            symbols=symbols(),
        )
    # Checkpoints were trained with the tokenizer that was here, if they are there already.
    run.checksums.keep(*run.tokenizer_files(), new=not run.checkpoints.state_steps())
    return Tokenizer(run.tokenizer)


def load_translator(
    run: Run,
    checkpoint: str | Path,
    decoding: DecodingConfig,
    num_hypotheses: int = 1,
    others: Sequence[Run] = (),
    precision: str = "float32",
    shortlist: bool = False,
) -> Translator:
    """A translator with the weights of a checkpoint: best, average, last, a step or a file.

    It computes in float32 unless told otherwise, whatever the precision of training was. In
    bfloat16 it keeps the weights in bfloat16 too.

    Args:
        run: the run.
        checkpoint: which of its checkpoints, or a file.
        decoding: how to search.
        num_hypotheses: translations to return for each sentence.
        others: runs with the same tokenizer, to decode with as an ensemble.
        precision: float32, or bfloat16.
        shortlist: search with the run's shortlist only; see `decoding.shortlist`.

    Raises:
        UserError: if a run lacks the checkpoint, a tokenizer or the shortlist, or has another
            tokenizer.
    """
    models = [_load_model(one, checkpoint, precision) for one in (run, *others)]
    tokenizer = Tokenizer(run.require_tokenizer())
    for other in others:
        if Tokenizer(other.require_tokenizer()).models != tokenizer.models:
            raise UserError(
                "The runs of an ensemble must have the same tokenizer. Received: another one "
                f"in {other.path} than in {run.path}. Train it with "
                f"--set data.tokenizer={run.tokenizer}."
            )
    model = Ensemble(models) if others else models[0]
    run.checksums.require(run.shortlist)
    own = Shortlist.read(run.shortlist, model.vocab_size) if shortlist else None
    return Translator(model, tokenizer, decoding, num_hypotheses, own)


def _load_model(run: Run, checkpoint: str | Path, precision: str) -> Transformer:
    path = checkpoint if isinstance(checkpoint, Path) else run.checkpoints.find(checkpoint)
    run.require_tokenizer()
    model = build_model(run.config, precision)
    model.position_limits = position_limits(run)
    load_weights(path, model)
    return model
