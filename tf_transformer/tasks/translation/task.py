"""Translation: parallel text in two languages, scored by BLEU."""

import dataclasses
from collections.abc import Callable

import keras

from tf_transformer.config import Config, DataConfig
from tf_transformer.data import builtin
from tf_transformer.data.corpora import all_pairs, corpora
from tf_transformer.data.tags import check_tags
from tf_transformer.decoding.translator import BatchTranslator
from tf_transformer.errors import UserError
from tf_transformer.evaluation.scores import Scores, score_translations
from tf_transformer.run import Run
from tf_transformer.tasks.models import check_positions
from tf_transformer.tasks.record import Progress, TaskRecord
from tf_transformer.tasks.sequences import SequenceTask


@dataclasses.dataclass(frozen=True)
class Sample:
    """A dev sentence, its reference and what the model makes of it."""

    source: str
    reference: str
    translation: str


@dataclasses.dataclass(frozen=True)
class DevResult:
    """The dev set, translated: its scores, and some of it."""

    scores: Scores
    samples: list[Sample]

    @property
    def metrics(self) -> dict[str, float]:
        """Scores for metrics.jsonl."""
        return {
            "bleu": self.scores.bleu.value,
            "chrf": self.scores.chrf.value,
            "exact": self.scores.exact,
        }

    @property
    def headline(self) -> str:
        """Main score for the console."""
        return f"BLEU {self.scores.bleu.value:.2f}"

    @property
    def example(self) -> str:
        """A sentence to try the model with."""
        return self.samples[0].source if self.samples else "Your sentence."

    def lines(self) -> list[str]:
        """Samples and scores, for the end of a training."""
        shown = [
            f"\n  source     {sample.source}\n  reference  {sample.reference}\n"
            f"  model      {sample.translation}"
            for sample in self.samples
        ]
        share = f"dev sentences translated exactly: {100 * self.scores.exact:.1f} %"
        return [*shown, f"\ndev {self.scores.bleu}", share]


def effective_data(run: Run) -> DataConfig:
    """The run's data, or the built-in corpus, written into the run, if it names none."""
    data = run.config.data
    if data.train or data.valid:
        return data
    prefixes = builtin.write_corpus(run.data / "builtin")
    return dataclasses.replace(
        data,
        train=(str(prefixes["train"]),),
        valid=(str(prefixes["dev"]),),
        source=builtin.LANGUAGES[0],
        target=builtin.LANGUAGES[1],
    )


def check_config(config: Config) -> None:
    """Refuses missing files and settings that contradict each other, before anything else."""
    check_positions(config)
    data = config.data
    if data.separate_vocabularies and config.model.tie_embeddings:
        raise UserError(
            "`data.separate_vocabularies` needs a matrix for each: add "
            "--set model.tie_embeddings=false."
        )
    given = [name for name in ("train", "valid", "source", "target") if getattr(data, name)]
    if not given:
        if data.tag:
            raise UserError(f"--tag needs --train. Received: --tag {data.tag[0]} alone.")
        return
    if len(given) < 4:
        raise UserError(
            "Own data needs --train PREFIX --valid PREFIX --source LANG --target LANG, and the "
            f"built-in corpus none of them. Received: --{', --'.join(given)}."
        )
    if data.source == data.target:
        raise UserError(f"--source and --target must differ. Received: {data.source!r} twice.")
    for corpus in corpora((*data.train, *data.valid), data):
        corpus.check()
    check_tags(data)


class TranslationTask(SequenceTask):
    """Data, model and dev score of a translation run."""

    def __init__(self, run: Run, progress: Progress, *, may_encode: bool = True) -> None:
        super().__init__(run, effective_data(run), progress, may_encode=may_encode)
        self._dev = list(all_pairs(corpora(self.data.valid, self.data)))

    def evaluator(self, model: keras.Model) -> Callable[[], DevResult]:
        """A function that translates the dev set with the model's current weights."""
        translator = BatchTranslator(model, self.tokenizer, self.run.config.decoding)
        sources = [source for source, _ in self._dev]
        references = [reference for _, reference in self._dev]

        def evaluate() -> DevResult:
            translations = [found[0].text for found in translator.translate(sources)]
            triples = zip(sources[:5], references, translations, strict=False)
            scores = score_translations(translations, references)
            return DevResult(scores, [Sample(*triple) for triple in triples])

        return evaluate


TASK = TaskRecord(
    check_config=check_config,
    prepare=TranslationTask,
    effective_data=effective_data,
    prose=True,
    exports=True,
)
