"""Dropout by a hash: how far its masks are from independent random ones.

    python benchmarks/dropout_masks.py [--rounds 8]

Each row is a family of statistics that are standard normal for independent masks: how many, the
largest absolute value beside what is expected of so many, and their sum of squares, again as a
normal deviate (a value above 3 is suspicious). Masks are [1024, 1024], with the seeds that
programs draw. The last rows are negative controls, which must stand out.
"""

import argparse
import os
from collections.abc import Iterator
from itertools import combinations
from statistics import NormalDist

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

from tf_transformer.fast.dropout import Dropout, hashed_bits  # noqa: E402
from tf_transformer.fast.programs import draw_seeds  # noqa: E402
from tf_transformer.models.sums import SEED_DISTANCE  # noqa: E402

RATES = (0.1, 0.3, 0.5)
SHAPE = (1024, 1024)
LAYERS, STEPS, REPLICAS = 7, 3, 2
_bits = tf.function(lambda seed: hashed_bits(SHAPE, seed), jit_compile=True)


def centred(seed: int, rate: float) -> np.ndarray:
    """A mask with mean 0 and variance 1, if it is kept at the right rate."""
    kept = _bits(tf.constant(seed, tf.int64)).numpy() >= np.uint32(round(rate * 2**32))
    return (kept - (1 - rate)) / np.sqrt(rate * (1 - rate))


def product(*masks: np.ndarray) -> float:
    """A normal deviate: the sum of products of centred masks."""
    return float(np.prod(masks, axis=0).sum() / np.sqrt(masks[0].size))


def shifted(mask: np.ndarray, rows: int, columns: int) -> float:
    """The product of a mask with itself, so many rows and columns away."""
    return product(mask[rows:, columns:], mask[: SHAPE[0] - rows, : SHAPE[1] - columns])


def seeds_of(start: int) -> np.ndarray:
    """Seeds as programs draw them: [replicas, steps, layers]."""
    layers = [Dropout(0.1, seed=start + number) for number in range(LAYERS)]
    state = layers[0].seed_generator.state
    first, drawn = state.numpy(), []
    for replica in range(REPLICAS):
        state.assign(first + [replica * SEED_DISTANCE, 0])
        drawn.append([np.concatenate(list(draw_seeds(layers))) for _ in range(STEPS)])
    return np.array(drawn)


def families(start: int, rate: float) -> Iterator[tuple[str, list[float]]]:
    """Yields the statistics of the seeds that begin with `start`, by name."""
    seeds = seeds_of(start)
    masks = {index: centred(seed, rate) for index, seed in np.ndenumerate(seeds)}
    powers = [2**k for k in range(9)]
    yield "kept", [product(mask) for mask in masks.values()]
    yield "columns 1 to 256 apart", [shifted(m, 0, k) for m in masks.values() for k in powers]
    yield "rows 1 to 256 apart", [shifted(m, k, 0) for m in masks.values() for k in powers]
    yield "diagonal", [shifted(m, k, k) for m in masks.values() for k in powers]
    for name, axis in {"replicas": 0, "steps": 1, "layers and sites": 2}.items():
        yield (
            f"other {name}",
            [
                product(masks[one], masks[other])
                for one, other in combinations(masks, 2)
                if all((one[k] != other[k]) == (k == axis) for k in range(3))
            ],
        )
    yield (
        "three layers",
        [product(*(masks[0, 0, i] for i in three)) for three in combinations(range(LAYERS), 3)],
    )
    yield (
        "rows of another layer, shifted",
        [
            product(masks[0, 0, i][k:], masks[0, 0, i + 1][:-k])
            for i in range(LAYERS - 1)
            for k in powers
        ],
    )
    high = [centred(start + number * 2**32, rate) for number in range(4)]
    yield "seeds with one lower half", [product(a, b) for a, b in combinations(high, 2)]


def say(name: str, values: list[float]) -> None:
    """Prints a row of the table."""
    number, squares = len(values), float(np.square(values).sum())
    largest = max(map(abs, values))
    expected = NormalDist().inv_cdf(1 - 0.5 / (2 * number))  # the median of the largest
    deviate = np.sqrt(2 * squares) - np.sqrt(2 * number - 1)
    print(f"| {name} | {number:,} | {largest:.2f} | {expected:.2f} | {deviate:+.2f} |")


def controls() -> Iterator[tuple[str, list[float]]]:
    """Yields masks that are not independent: the statistics must show it."""
    mask = centred(1, 0.1)
    yield "control: one seed twice", [product(mask, mask)]
    index = np.arange(mask.size, dtype="uint32").reshape(SHAPE)
    kept = index * np.uint32(0x9E3779B1) >= np.uint32(0.1 * 2**32)
    product_only = (kept - 0.9) / 0.3
    yield "control: a product for a hash, columns apart", [shifted(product_only, 0, 1)]


def main(rounds: int) -> None:
    print("| | statistics | largest | expected | sum of squares |\n|---|---|---|---|---|")
    found: dict[str, list[float]] = {}
    for number in range(rounds):
        for rate in RATES:
            start = 10_000 * number + round(1_000 * rate)  # so that no two rates share bits
            for name, values in families(start, rate):
                found.setdefault(name, []).extend(values)
    for name, values in (*found.items(), *controls()):
        say(name, values)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=8, help="sets of seeds")
    main(parser.parse_args().rounds)
