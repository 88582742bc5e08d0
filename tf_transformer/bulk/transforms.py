"""Lines with keys, (file, number from 1), read, translated, scored and cleaned by Apache Beam.

An element is a key and the cells of its line: (text,) or (source, target). Beam bundles them as
it likes, and may compute a bundle again: what becomes of a line depends on no other, or on all
whatever their order. Each transform returns collections by name; "main" has what went well.
"""

import functools
import gzip
import itertools
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeAlias

import apache_beam as beam
from apache_beam.io.filesystems import FileSystems
from apache_beam.metrics import Metrics
from apache_beam.utils.shared import Shared

import tf_transformer
from tf_transformer.base.errors import UserError, one_line
from tf_transformer.base.output import single_line
from tf_transformer.config import DataConfig
from tf_transformer.data.text import Sample, corpora, line_of, raw_lines, read_errors, text_key
from tf_transformer.quality.defects import DUPLICATE, OVERLAP, SAMPLE_PAIRS, Judge

Element: TypeAlias = tuple[tuple[str, int], tuple[str, ...]]


def count(name: str, number: int = 1) -> None:
    """Adds to a counter of the pipeline."""
    Metrics.counter("tf_transformer", name).inc(number)


def _beside(name: str, key: tuple[str, int], reason: str, *cells: Any) -> Any:
    """Returns an element of another collection, counted by that name or by the reason."""
    count(reason if name == "rejected" else name)
    return beam.pvalue.TaggedOutput(name, (key, (reason, *cells)))


class ReadLines(beam.PTransform):
    """Reads texts, each of one file, or of a file of sources and one of targets, plain or .gz.

    A text is read by one worker, and its lines are spread over all. Returns "main", and
    "unreadable" with reasons: what is not UTF-8, or a table's line without so many `columns`.
    """

    def __init__(self, texts: Sequence[tuple[str, ...]], columns: int) -> None:
        super().__init__()
        self._texts, self._read = texts, functools.partial(_read, columns=columns)

    def expand(self, pbegin: Any) -> Any:
        """Applies the transform to a pipeline."""
        texts = pbegin | beam.Create(self._texts) | "texts" >> beam.Reshuffle()
        found = texts | beam.FlatMap(self._read).with_outputs("unreadable", main="main")
        lines = found.main | "lines" >> beam.Reshuffle()
        return {"main": lines, "unreadable": found.unreadable}


def _read(files: tuple[str, ...], columns: int) -> Iterator[Any]:
    for number, row in enumerate(itertools.zip_longest(*map(_raw_lines, files)), start=1):
        if None in row:
            raise UserError(f"Only one of {' and '.join(files)} has a line {number:,}.")
        try:
            lines = [line_of(file, number, line) for file, line in zip(files, row)]  # noqa: B905
            cells = tuple(lines if len(lines) == columns else lines[0].split("\t"))
            if len(cells) == columns:
                yield (files[0], number), cells
                continue
            reason = f"{len(cells)} columns instead of {columns}"
        except UserError as error:
            reason = str(error)
        texts = [line.decode("utf-8", "replace").rstrip("\r\n") for line in row]
        yield _beside("unreadable", (files[0], number), reason, *texts)


def _raw_lines(file: str) -> Iterator[bytes]:
    # Beam itself takes a .gz file that was cut off for a whole one.
    with read_errors(file), FileSystems.open(file, compression_type="uncompressed") as opened:
        unpacked: Any = gzip.GzipFile(fileobj=opened) if file.endswith(".gz") else opened
        yield from raw_lines(file, unpacked)


class Translate(beam.PTransform):
    """Translates texts by `Translator.translate`.

    Args:
        model: what `tf_transformer.load` takes, such as an export, at a path that all workers
            see. Each process loads it once.
        batch: number of lines for the model at once.
        **options: of `translate`, such as `alpha=1.0`.

    Returns:
        "main": keys with score, log-probability and translation; "suspect": reasons, text and
        translation of those that look wrong; "failed": reason and text where it failed.

    Example:
        >>> with beam.Pipeline() as pipeline:
        ...     lines = pipeline | ReadLines([("part-1.en",), ("part-2.en",)], 1)
        ...     found = lines["main"] | Translate("exported/transformer")
        ...     found["main"] | beam.Map(print)
    """

    method = "translate"

    def __init__(self, model: str, batch: int = 256, **options: Any) -> None:
        super().__init__()
        self._batch, self._compute = batch, _Compute(model, self.method, options)

    def expand(self, elements: Any) -> Any:
        """Applies the transform to a collection."""
        compute = beam.ParDo(self._compute).with_outputs("suspect", "failed", main="main")
        found = elements | beam.BatchElements(self._batch, self._batch) | compute
        return {name: found[name] for name in ("main", "suspect", "failed")}


class Score(Translate):
    """Scores pairs by `Translator.score`; see `Translate`, with targets for translations."""

    method = "score"


class _Compute(beam.DoFn):
    def __init__(self, model: str, method: str, options: dict[str, Any]) -> None:
        self._model, self._method, self._options = model, method, options
        self._shared = Shared()  # by the threads of a process

    def setup(self) -> None:
        model = self._shared.acquire(lambda: tf_transformer.load(self._model))
        self._answers = functools.partial(getattr(model, self._method), **self._options)

    def process(self, batch: Sequence[Element]) -> Iterator[Any]:
        start = time.monotonic()
        found = [*self._found(batch)]
        count("lines", len(batch))
        count("milliseconds", round(1_000 * (time.monotonic() - start)))
        yield from found

    def _found(self, batch: Sequence[Element]) -> Iterator[Any]:
        """Yields what the model answers; what fails by itself, found by halves, is beside."""
        keys, rows = zip(*batch, strict=True)
        try:
            answers = self._answers(*map(list, zip(*rows, strict=True)))
        except Exception as error:  # whatever it is, the other lines are well without this one
            if half := len(batch) // 2:
                yield from (*self._found(batch[:half]), *self._found(batch[half:]))
            else:
                reason = one_line(f"{type(error).__name__}: {error}")
                yield _beside("failed", keys[0], reason, *rows[0])
            return
        count(f"{self._method}d", len(keys))  # translated or scored
        for key, row, answer in zip(keys, rows, answers, strict=True):
            count("tokens", answer.num_tokens)
            yield key, (answer.score, answer.log_prob, single_line(answer))
            if reasons := answer.warnings:
                yield _beside("suspect", key, "; ".join(reasons), row[0], single_line(answer))


class Clean(beam.PTransform):
    """Keeps the pairs that `doctor --clean` keeps as train, dev or test, by its rules.

    Args:
        files: those of the keys, in doctor's order: the first of equal pairs stays.
        data: settings of the text: `max_length`, `bleu_tokenizer`, and those of `held`.
        held: dev and test texts, with which no pair that is kept shares a side.
        numbers: whether to reject pairs whose numbers differ.

    Returns:
        "main", and "rejected" with reasons.
    """

    def __init__(
        self, files: Sequence[str], data: DataConfig, held: Sequence[str] = (), numbers=False
    ) -> None:
        super().__init__()
        self._places = {file: place for place, file in enumerate(files)}
        self._judge = functools.partial(_judge, data=data, numbers=numbers)
        pairs = [pair for text in corpora(held, data) for pair in text.plain_pairs()]
        self._held = [frozenset(text_key(pair[side]) for pair in pairs) for side in (0, 1)]

    def expand(self, pairs: Any) -> Any:
        """Applies the transform to a collection."""
        samples = pairs | beam.BatchElements(1_000, 1_000) | beam.Map(_sample, self._places)
        sample = samples | beam.CombineGlobally(_joined)
        judge = beam.pvalue.AsSingleton(sample | "judge" >> beam.Map(self._judge))
        judged = pairs | beam.FlatMap(_judged, judge).with_outputs("rejected", main="main")
        once = "once" >> beam.FlatMap(_once, self._places, self._held)
        apart = judged.main | beam.GroupByKey() | once.with_outputs("rejected", main="main")
        rejected = (judged.rejected, apart.rejected) | beam.Flatten()
        return {"main": apart.main, "rejected": rejected}


def _sample(pairs: Sequence[Element], places: dict[str, int]) -> Sample:
    sample = Sample[tuple](SAMPLE_PAIRS)
    for (file, line), pair in pairs:
        sample.offer(number := places[file] << 40 | line, (*pair, number))
    return sample


def _joined(samples: Iterable[Sample]) -> Sample:
    return functools.reduce(Sample.add, samples, Sample(SAMPLE_PAIRS))


def _judge(sample: Sample, data: DataConfig, numbers: bool) -> Judge:
    return Judge(sorted(sample.items(), key=lambda pair: pair[2]), data, numbers)


def _judged(element: Element, judge: Judge) -> Iterator[Any]:
    key, pair = element
    count("lines")
    if defect := judge.defect(*pair):
        yield _beside("rejected", key, defect, *pair)
    else:
        yield tuple(map(text_key, pair)), element


def _once(group: tuple, places: dict[str, int], held: Sequence[frozenset]) -> Iterator[Any]:
    hashes, equal = group
    first = min((key for key, _ in equal), key=lambda key: (places[key[0]], key[1]))
    overlaps = any(key in known for key, known in zip(hashes, held, strict=True))
    for key, pair in equal:
        if key != first or overlaps:
            yield _beside("rejected", key, OVERLAP if key == first else DUPLICATE, *pair)
        else:
            count("kept")
            yield key, pair
