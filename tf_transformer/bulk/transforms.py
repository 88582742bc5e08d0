"""Lines and pairs with keys, read, translated, scored and cleaned as Apache Beam's transforms.

Beam splits a collection into bundles as it likes, and computes a bundle again if a machine is
lost. Nothing here depends on that: what becomes of a line is a function of the line, or of all
lines whatever their order. A line keeps its key, file and number from 1, by which the results
can be put in order again.
"""

import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from typing import Any, TypeAlias

import apache_beam as beam
from apache_beam.io.filesystems import FileSystems
from apache_beam.metrics import Metrics
from apache_beam.utils.shared import Shared

from tf_transformer.base.errors import UserError, one_line
from tf_transformer.base.output import single_line
from tf_transformer.config import DataConfig
from tf_transformer.data.text import (
    ParallelText,
    Sample,
    corpora,
    line_of,
    raw_lines,
    sampled_number,
    text_key,
)
from tf_transformer.quality.defects import DUPLICATE, OVERLAP, SAMPLE_PAIRS, Judge

Key: TypeAlias = tuple[str, int]  # file and line, from 1
Pair: TypeAlias = tuple[str, str]  # source and target
BATCH = 256  # lines for the model at once, which it sorts into batches by length
FAILED, SUSPECT, REJECTED = "failed", "suspect", "rejected"  # names of outputs beside


def counted(name: str, number: int = 1) -> None:
    """Adds to a counter of the pipeline."""
    Metrics.counter("tf_transformer", name).inc(number)


def _failed(key: Key, reason: object, content: object) -> Any:
    counted(FAILED)
    return beam.pvalue.TaggedOutput(FAILED, (key, one_line(reason), content))


class ReadLines(beam.PTransform):
    """Reads files of lines, or of pairs: two files for each, or a table of two columns.

    Beam opens them, so that they may lie where it can read, and unpacks .gz. A file is read by
    one worker; its lines are then spread over all.

    Args:
        files: for each text one file, or that of its sources and that of its targets.
        columns: those of a line: 1, or 2 for tables.

    Returns:
        `main`: ((file, line), text), or ((file, line), (source, target)); `failed`: ((file,
        line), reason, bytes) for a line that is not UTF-8 or a table's without two columns.
    """

    def __init__(self, files: Sequence[tuple[str, ...]], columns: int = 1) -> None:
        super().__init__()
        self._files, self._columns = list(files), columns

    def expand(self, pbegin: Any) -> Any:
        """Applies the transform to the pipeline."""
        read = beam.ParDo(_Read(self._columns)).with_outputs(FAILED, main="main")
        texts = pbegin | beam.Create(self._files, reshuffle=False) | beam.Reshuffle()
        found = texts | "read" >> read
        return {"main": found.main | "spread" >> beam.Reshuffle(), FAILED: found[FAILED]}


class _Read(beam.DoFn):
    def __init__(self, columns: int) -> None:
        self._columns = columns

    def process(self, files: tuple[str, ...]) -> Iterator[Any]:
        with ExitStack() as stack:
            opened = [stack.enter_context(FileSystems.open(file)) for file in files]
            raw = map(raw_lines, files, opened)
            for number, row in enumerate(itertools.zip_longest(*raw), start=1):
                if None in row:
                    raise UserError(
                        "Parallel files must have the same number of lines. Received: only "
                        f"one with a line {number:,} of {' and '.join(files)}."
                    )
                key = files[0], number
                try:
                    both = zip(files, row, strict=True)
                    sides = [line_of(file, number, line) for file, line in both]
                    if self._columns > len(files):
                        sides = sides[0].split("\t")
                    if len(sides) != self._columns:
                        raise UserError(f"{len(sides)} columns instead of {self._columns}")
                except UserError as error:
                    yield _failed(key, error, b"\t".join(row))
                else:
                    yield key, (tuple(sides) if self._columns > 1 else sides[0])


class _Computed(beam.PTransform):
    """What a model computes for batches of elements."""

    def __init__(self, model: str, batch: int, options: dict[str, Any]) -> None:
        super().__init__()
        self._batch, self._compute = batch, _Compute(model, self._answers, options)

    _answers: Callable[..., Sequence[Any]]

    def expand(self, elements: Any) -> Any:
        """Applies the transform to a collection."""
        sizes = {"min_batch_size": self._batch, "max_batch_size": self._batch}
        batches = elements | beam.BatchElements(**sizes)
        found = batches | beam.ParDo(self._compute).with_outputs(FAILED, SUSPECT, main="main")
        return {name: found[name] for name in ("main", SUSPECT, FAILED)}


class _Compute(beam.DoFn):
    def __init__(self, model: str, answers: Callable[..., Any], options: dict) -> None:
        self._model, self._answers, self._options = model, answers, options
        self._shared = Shared()  # one model for all threads of a process

    def setup(self) -> None:
        self._translator = self._shared.acquire(self._load)

    def _load(self) -> Any:
        import tf_transformer

        return tf_transformer.load(self._model)

    def process(self, batch: Sequence[tuple[Key, Any]]) -> Iterator[Any]:
        start = time.monotonic()
        yield from self._found(batch)
        counted("lines", len(batch))
        counted("milliseconds", round(1_000 * (time.monotonic() - start)))

    def _found(self, batch: Sequence[tuple[Key, Any]]) -> Iterator[Any]:
        """Yields the results; those that fail alone, found by halves, come out beside."""
        try:
            contents = [content for _, content in batch]
            answers = self._answers(self._translator, contents, **self._options)
        except Exception as error:  # whatever it is, the other lines can do without this one
            if len(batch) == 1:
                yield _failed(batch[0][0], f"{type(error).__name__}: {error}", batch[0][1])
                return
            half = len(batch) // 2
            yield from self._found(batch[:half])
            yield from self._found(batch[half:])
            return
        for (key, content), answer in zip(batch, answers, strict=True):
            figures = single_line(answer), answer.score, answer.log_prob, answer.num_tokens
            counted("tokens", answer.num_tokens)
            yield key, figures
            if reasons := answer.warnings:
                counted(SUSPECT)
                yield beam.pvalue.TaggedOutput(SUSPECT, (key, reasons, content, figures[0]))


class Translate(_Computed):
    """Translates lines, ((file, line), text), as `Translator.translate` does.

    Args:
        model: an export, or whatever `tf_transformer.load` takes, where the workers find it.
            Each process loads it once.
        batch: lines for the model at once.
        **options: of `Translator.translate`, such as `alpha=1.0`.

    Returns:
        `main`: (key, (translation, score, log_prob, tokens)); `suspect`: (key, reasons, text,
        translation) for those of `main` that look wrong; `failed`: (key, reason, text) for
        lines that have no translation.

    Example:
        >>> with beam.Pipeline() as pipeline:
        ...     lines = pipeline | ReadLines([("part-1.en",), ("part-2.en",)])
        ...     found = lines["main"] | Translate("exported/transformer")
        ...     found["main"] | beam.Map(print)
    """

    def __init__(self, model: str, batch: int = BATCH, **options: Any) -> None:
        super().__init__(model, batch, options)

    @staticmethod
    def _answers(translator: Any, texts: list[str], **options: Any) -> Sequence[Any]:
        return translator.translate(texts, **options)


class Score(_Computed):
    """Scores pairs, ((file, line), (source, target)), as `Translator.score` does.

    Arguments and outputs are those of `Translate`, with the target for the translation.
    """

    def __init__(self, model: str, batch: int = BATCH, **options: Any) -> None:
        super().__init__(model, batch, options)

    @staticmethod
    def _answers(translator: Any, pairs: list[Pair], **options: Any) -> Sequence[Any]:
        sources, targets = map(list, zip(*pairs, strict=True))
        return translator.score(sources, targets, **options)


class Clean(beam.PTransform):
    """Keeps the pairs that `doctor --clean` keeps, as train, dev or test, each once.

    The rules, and the sample of pairs that tells what is usual, are the same ones. Equal pairs
    are found by grouping: the first stays, in the order of `files`.

    Args:
        files: the files in the keys, in the order in which doctor has the texts.
        data: settings of the text: `max_length` and `bleu_tokenizer`.
        held: names of dev and test texts, as `data` has them: a pair that shares a side with
            one of theirs is rejected.
        numbers: whether to reject pairs whose numbers differ.

    Returns:
        `main`: ((file, line), (source, target)); `rejected`: (key, reason, pair).
    """

    def __init__(
        self,
        files: Sequence[str],
        data: DataConfig,
        held: Sequence[str] = (),
        numbers: bool = False,
    ) -> None:
        super().__init__()
        self._places = {file: place for place, file in enumerate(files)}
        self._data, self._numbers = data, numbers
        self._held = held_keys(corpora(held, data))

    def expand(self, pairs: Any) -> Any:
        """Applies the transform to a collection."""
        data, numbers = self._data, self._numbers
        judge = (
            pairs
            | "sample" >> beam.CombineGlobally(_Sampling(self._places))
            | "learn" >> beam.Map(lambda sample: Judge(sample.taken(), data, numbers))
        )
        judged = pairs | "judge" >> beam.ParDo(
            _Judge(), beam.pvalue.AsSingleton(judge)
        ).with_outputs(REJECTED, main="main")
        apart = (
            judged.main
            | "group" >> beam.GroupByKey()
            | "each once" >> beam.ParDo(_Once(self._places, self._held)).with_outputs(
                REJECTED, main="main"
            )
        )  # fmt: skip
        rejected = (judged[REJECTED], apart[REJECTED]) | "all rejected" >> beam.Flatten()
        return {"main": apart.main, REJECTED: rejected}


def held_keys(texts: Sequence[ParallelText]) -> tuple[frozenset[int], frozenset[int]]:
    """Returns the hashes of all sources, and of all targets."""
    pairs = [pair for text in texts for pair in text.plain_pairs()]
    sources, targets = (frozenset(text_key(pair[side]) for pair in pairs) for side in (0, 1))
    return sources, targets


class _Sampling(beam.CombineFn):
    def __init__(self, places: dict[str, int]) -> None:
        self._places = places

    def create_accumulator(self) -> Sample[Pair]:
        return Sample(SAMPLE_PAIRS)

    def add_input(self, sample: Sample[Pair], element: tuple[Key, Pair]) -> Sample[Pair]:
        (file, line), pair = element
        sample.offer(sampled_number(self._places[file], line - 1), pair)
        return sample

    def merge_accumulators(self, samples: Iterable[Sample[Pair]]) -> Sample[Pair]:
        result = self.create_accumulator()
        for sample in samples:
            result.add(sample)
        return result

    def extract_output(self, sample: Sample[Pair]) -> Sample[Pair]:
        return sample


def _rejected(key: Key, reason: str, pair: Pair) -> Any:
    counted(reason)
    return beam.pvalue.TaggedOutput(REJECTED, (key, reason, pair))


class _Judge(beam.DoFn):
    def process(self, element: tuple[Key, Pair], judge: Judge) -> Iterator[Any]:
        key, pair = element
        counted("lines")
        if defect := judge.defect(*pair):
            yield _rejected(key, defect, pair)
        else:
            yield tuple(map(text_key, pair)), (key, pair)


class _Once(beam.DoFn):
    def __init__(self, places: dict[str, int], held: tuple[frozenset, ...]) -> None:
        self._places, self._held = places, held

    def process(self, group: tuple[Pair, Iterable[tuple[Key, Pair]]]) -> Iterator[Any]:
        hashes, equal = group
        first = min((self._places[file], line) for (file, line), _ in equal)
        overlaps = any(key in held for key, held in zip(hashes, self._held, strict=True))
        for key, pair in equal:
            if (self._places[key[0]], key[1]) != first:
                yield _rejected(key, DUPLICATE, pair)
            elif overlaps:
                yield _rejected(key, OVERLAP, pair)
            else:
                counted("kept")
                yield key, pair
