"""Writes batches of real text for training benchmarks, made by the package.

They are either batches at evenly spaced quantiles of length, so that a few represent a whole
epoch, or the first batches of training in order.
"""

from collections.abc import Iterable
from pathlib import Path

import numpy as np
from corpus import LIMITS
from harness.child import serve
from harness.sentences import evenly_spaced

from tf_transformer.base.files import replacing
from tf_transformer.data.batches import make_dataset
from tf_transformer.data.encoded_corpus import EncodedCorpus
from tf_transformer.data.plan import BatchPlan


def setup(corpus: str, batch_tokens: int, number: int, in_order: bool = False) -> dict:
    """Args:
    corpus: a folder written by corpus.py.
    batch_tokens: positions of either side of a batch.
    number: number of batches.
    in_order: take the first batches instead of some that represent an epoch.
    """

    def write(path: str) -> dict:
        encoded = EncodedCorpus.open(Path(corpus) / "encoded")
        with replacing(Path(path)) as temporary, temporary.open("wb") as file:
            np.savez(file, **_batches(encoded, batch_tokens, number, in_order))
        return {}

    return {"write": write}


def _batches(
    corpus: EncodedCorpus, batch_tokens: int, number: int, in_order: bool
) -> dict[str, np.ndarray]:
    plan = BatchPlan(
        corpus.source_lengths,
        corpus.target_lengths,
        batch_tokens=batch_tokens,
        max_length=LIMITS["max_length"],
        seed=1,
    )
    if in_order:
        return _arrays(make_dataset(corpus, plan, num_steps=number).as_numpy_iterator())
    steps = sorted(range(plan.steps_per_epoch), key=lambda step: plan.batch(step).length)
    chosen = evenly_spaced(steps, number)
    datasets = [make_dataset(corpus, plan, start_step=step, num_steps=1) for step in chosen]
    return _arrays(batch for dataset in datasets for batch in dataset.as_numpy_iterator())


def _arrays(batches: Iterable[tuple[dict[str, np.ndarray], np.ndarray]]) -> dict:
    arrays = {}
    for i, (inputs, labels) in enumerate(batches):
        arrays |= {f"source_{i}": inputs["source"], f"target_{i}": inputs["target"]}
        arrays[f"labels_{i}"] = labels
    return arrays


if __name__ == "__main__":
    serve(setup)
