"""Importance of heads and sublayers, and pruning (Michel et al. 2019, arXiv 1905.10650)."""

import dataclasses
import functools
import hashlib
import json
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from tqdm import tqdm

from experiments.common import table, write
from experiments.heads.masks import Head, HeadMasks
from tf_transformer import Translator, UserError, evaluation

_POINTS = 24  # approximate number of points on a curve

# --- Measurements --------------------------------------------------------------------------

Measure: TypeAlias = Callable[[Collection[Head]], float]
Measures: TypeAlias = Mapping[str, Measure]


def measures(
    translator: Translator,
    masks: HeadMasks,
    sources: list[str],
    references: list[str],
    tokenize: str = "13a",
) -> dict[str, Measure]:
    """Returns functions that measure a single model while some heads are masked.

    They are "loss", the mean negative log-probability of a target piece, including EOS, in nats
    and without label smoothing; and "bleu", sacreBLEU of the best translations with its
    tokeniser `tokenize`. All pairs must fit (`Translator.fits`).
    """

    def loss(masked: Collection[Head]) -> float:
        masks.apply(masked)
        scored = translator.score(sources, references)
        pieces = sum(target.num_tokens for target in scored)
        return -sum(target.log_prob for target in scored) / pieces

    def score(masked: Collection[Head]) -> float:
        masks.apply(masked)
        translations = translator.translate(sources)
        return evaluation.bleu(translations, references, tokenize=tokenize).value

    return {"loss": loss, "bleu": score}


def remembered(path: Path, functions: Measures) -> dict[str, Measure]:
    """Returns the same functions, which save to a file what they measure, and measure it once.

    The file is replaced as a whole after each measurement, so that an interruption costs at
    most one. Raises UserError if the file is damaged.
    """
    known: dict[str, dict[str, float]] = {}
    if path.exists():
        try:
            known = json.loads(path.read_text("utf-8"))
        except ValueError as error:
            raise UserError(
                f"{path} cannot be read as measurements: {error}. Delete it to measure again, "
                "or use another --output."
            ) from None
        print(f"{path}: {len(known)} masks measured before")

    def measure(name: str, masked: Collection[Head]) -> float:
        figures = known.setdefault(", ".join(map(str, sorted(masked))), {})
        if name not in figures:
            figures[name] = functions[name](masked)
            write(path, json.dumps(known))
        return figures[name]

    return {name: functools.partial(measure, name) for name in functions}


# --- Study ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Importance:
    """The change in loss (nats per piece) and BLEU when only one head or sublayer is masked."""

    head: Head
    loss_change: float
    bleu_change: float | None = None


@dataclass(frozen=True)
class Point:
    """Loss and BLEU with `kept` heads; `pruned` names the others in the order of pruning."""

    kept: int
    pruned: list[str]
    loss: float
    bleu: float | None = None


@dataclass(frozen=True)
class Study:
    """The results for the heads of a model."""

    importances: list[Importance]  # of each head by itself
    sublayers: list[Importance]  # of each whole sublayer
    pruning_order: list[Head]  # the first to be pruned first
    curve: list[Point]  # with fewer and fewer heads

    def sublayer_table(self) -> str:
        """Returns the changes of loss and BLEU when a sublayer is masked."""
        bleu = ["BLEU"] if self.curve[0].bleu is not None else []
        rows = []
        for one in self.sublayers:
            changes = [f"{one.loss_change:+.4f}", *(f"{one.bleu_change:+.2f}" for _ in bleu)]
            rows.append([f"{one.head}", *changes])
        return table(["sublayer masked", "loss", *bleu], rows, "lr")

    def table(self) -> str:
        """Returns loss and BLEU by the number of heads kept."""
        bleu = ["BLEU"] if self.curve[0].bleu is not None else []
        rows = [
            [f"{point.kept}", f"{point.loss:.4f}", *(f"{point.bleu:.2f}" for _ in bleu)]
            for point in self.curve
        ]
        return table(["heads kept", "loss", *bleu], rows, "r")


def importances(heads: Sequence[Head], functions: Measures) -> list[Importance]:
    """Measures the importance of each head by itself (Michel et al. 2019, section 3.2)."""
    whole = {name: function([]) for name, function in functions.items()}
    results = []
    for head in tqdm(heads, "masking one by one", disable=None):
        changes = {
            f"{name}_change": function([head]) - whole[name]
            for name, function in functions.items()
        }
        results.append(Importance(head, **changes))
    return results


def iterative_order(heads: Sequence[Head], loss: Measure) -> list[Head]:
    """Returns the order of backward elimination, which always prunes the cheapest head.

    The remaining heads are measured again after each pruning, so that one of two redundant
    heads is kept. n heads need n (n + 1) / 2 measurements of the loss.
    """
    pruned: list[Head] = []
    for _ in tqdm(heads, "pruning one by one", disable=None):
        left = [head for head in heads if head not in pruned]
        losses = [loss([*pruned, head]) for head in left]
        pruned.append(left[losses.index(min(losses))])
    return pruned


def pruning_curve(heads: Sequence[Head], functions: Measures) -> list[Point]:
    """Measures the model with all heads, then without the first ones, down to none.

    With up to 24 heads every number is measured, with up to 48 every second one, and so on.
    """
    step = math.ceil(len(heads) / _POINTS)
    counts = [*range(0, len(heads), step), len(heads)]
    points = []
    for count in tqdm(counts, "pruning", disable=None):
        masked = heads[:count]
        figures = {name: function(masked) for name, function in functions.items()}
        points.append(Point(len(heads) - count, list(map(str, masked)), **figures))
    return points


def measure_heads(
    translator: Translator,
    sources: list[str],
    references: list[str],
    output: Path,
    *,
    tokenize: str = "13a",
    with_bleu: bool = True,
    iterative: bool = False,
) -> Study:
    """Measures all heads and writes the results; the same is not measured again.

    The model's weights are restored afterwards. All pairs must fit; `iterative` chooses
    `iterative_order`. Writes heads.json, and a file of measurements for each combination of
    weights, text and search.
    """
    model: Any = translator.model
    masks = HeadMasks(model)
    tokenize = evaluation.tokenizer_for(tokenize, references)
    functions = measures(translator, masks, sources, references, tokenize)
    if not with_bleu:
        del functions["bleu"]
    identity = _identity(translator, repr((sources, references, tokenize)))
    functions = remembered(output / f"measured-{identity}.json", functions)
    try:
        heads = importances(masks.heads, functions)
        pruned = sorted(heads, key=lambda each: each.loss_change)
        pruning_order = [each.head for each in pruned]
        if iterative:
            pruning_order = iterative_order(masks.heads, functions["loss"])
        sublayers = importances(masks.sublayers, functions)
        curve = pruning_curve(pruning_order, functions)
        study = Study(heads, sublayers, pruning_order, curve)
    finally:
        masks.apply([])
    content = {
        "sentences": len(sources),
        "signature": evaluation.bleu_signature(tokenize),
        "importance": _by_name("head", heads),
        "sublayers": _by_name("sublayer", sublayers),
        "order": "iterative" if iterative else "by importance",
        "curve": list(map(dataclasses.asdict, study.curve)),
    }
    write(output / "heads.json", json.dumps(content, indent=1) + "\n")
    print(output / "heads.json")
    return study


def _identity(translator: Translator, *others: str) -> str:
    """Returns a hash of all that determines a measurement: weights, search, text."""
    found = hashlib.sha256()
    model: Any = translator.model
    for weight in model.weights:
        found.update(weight.numpy().tobytes())
    decoding = dataclasses.replace(translator.decoding, checkpoint="best", batch_tokens=4096)
    for text in (repr(decoding), translator.tokenizer.tag, *others):
        found.update(text.encode())
    return found.hexdigest()[:8]


def _by_name(key: str, results: Sequence[Importance]) -> list[dict[str, Any]]:
    return [
        {key: str(one.head), "loss_change": one.loss_change, "bleu_change": one.bleu_change}
        for one in results
    ]
