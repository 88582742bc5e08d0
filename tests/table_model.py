"""A model that is one table per sentence, and searches over it written with lists.

The whole history of a beam, read through the ancestry, selects the row of next-token logits, so
a wrong ancestor gives different logits.
"""

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from tf_transformer.config import BOS_ID, EOS_ID, PAD_ID
from tf_transformer.decoding.beam_search import beam_search
from tf_transformer.decoding.hypotheses import Hypotheses
from tf_transformer.decoding.rules import (
    Applied,
    MinLengths,
    NextToken,
    NoRepeatedNgrams,
    OnlyTokens,
    Prefixes,
    Rule,
    Slots,
)

NUM_ROWS = 97
WEIGHTS = [pow(31, position, NUM_ROWS) for position in range(40)]
SLOT_IDS = np.array([[4, 5], [6, 7]], np.int32)  # of two slots, in two forms
NO_SCORE = float(np.finfo(np.float32).min)


def table_row(tokens: tuple[int, ...]) -> int:
    history = (BOS_ID, *tokens)
    return sum(token * WEIGHTS[i] for i, token in enumerate(history)) % NUM_ROWS


def table_step(tokens, index, ancestry, cache):
    read = tf.concat([cache["read"], tokens[:, tf.newaxis]], axis=1)  # [B, index + 1, W]
    chosen = tf.one_hot(ancestry, tokens.shape[1], dtype=tf.int32)  # [B, W, index + 1, W]
    histories = tf.reduce_sum(chosen * read[:, tf.newaxis], axis=-1)  # [B, W, index + 1]
    rows = tf.reduce_sum(histories * tf.constant(WEIGHTS)[: index + 1], axis=-1) % NUM_ROWS
    logits = tf.gather(cache["tables"], rows, batch_dims=1)
    return logits, {"read": read, "tables": cache["tables"]}


class TableStep:
    """`table_step` in NumPy."""

    gives_best = False

    def __init__(self, tables: np.ndarray) -> None:
        self.tables, self.read, self.sizes = tables, [], []

    def __call__(self, tokens, index, ancestry):
        self.read.append(tokens)
        self.sizes.append(len(tokens))
        assert index == len(self.read) - 1
        assert (ancestry[:, :, -1] == range(tokens.shape[1])).all()
        read = np.stack(self.read, axis=-1)  # [B, W, t]
        histories = np.take_along_axis(read, ancestry, axis=1)
        rows = (histories * WEIGHTS[: index + 1]).sum(-1) % NUM_ROWS
        return np.take_along_axis(self.tables, rows[..., np.newaxis], axis=1)

    def keep(self, rows):
        self.tables = self.tables[rows]
        self.read = [tokens[rows] for tokens in self.read]


OPTION_SPECS = {
    "own_alphas": tf.TensorSpec([None], tf.float32),
    "prefix": tf.TensorSpec([None, None], tf.int32),
    "min_lengths": tf.TensorSpec([None], tf.int32),
    "steps": tf.TensorSpec([None, None, None], tf.bool),
    "most": tf.TensorSpec([None], tf.int32),
    "second": tf.TensorSpec([None], tf.int32),
    "slots": tf.TensorSpec([None, None], tf.int32),
    "seeds": tf.TensorSpec([None], tf.int32),
}


class StepByStep(Rule):
    """Allows certain tokens at each step; its context holds them, bool [B, any, V]."""

    def next_token(self, beams):
        return NextToken(allowed=beams.context["allowed"][:, np.newaxis, beams.index])


class AtMost(Rule):
    """Writes the token A at most as often as the context says, int32 [B]."""

    def initial_state(self, beams):
        return beams.context[:, np.newaxis] + np.zeros([1, beams.tokens.shape[1]], np.int32)

    def next_state(self, beams):
        return beams.state - beams.ops.where(beams.tokens[..., -1] == A, 1, 0)

    def next_token(self, beams):
        used_up = beams.ops.where(beams.state <= 0, A, PAD_ID)
        return NextToken(forbidden=used_up[..., np.newaxis])


class Second(Rule):
    """Forces the second token, if the context, int32 [B], is not PAD."""

    def next_token(self, beams):
        forced = beams.ops.where(beams.index == 1, beams.context, PAD_ID)
        return NextToken(forced=forced[:, np.newaxis])


def applied(
    prefix=None,
    slots=None,
    second=None,
    steps=None,
    most=None,
    min_lengths=None,
    no_repeat_ngram=0,
    drawable=None,
) -> list[Applied]:
    """The rules of these options, in an engine's order."""
    found = [] if prefix is None else [(Prefixes(), prefix)]
    found += [] if slots is None else [(Slots(SLOT_IDS), slots)]
    found += [] if second is None else [(Second(), second)]
    found += [] if steps is None else [(StepByStep(), {"allowed": steps})]
    found += [] if most is None else [(AtMost(), most)]
    found += [] if min_lengths is None else [(MinLengths(), min_lengths)]
    found += [(NoRepeatedNgrams(no_repeat_ngram), ())] if no_repeat_ngram else []
    return found + ([] if drawable is None else [(OnlyTokens(np.array(drawable)), ())])


RULES = tuple(inspect.signature(applied).parameters)


@functools.lru_cache(8)
def compiled_search(vocabulary_size: int, find: Callable, names: tuple, settings: tuple):
    """A search as one graph for any batch; it also returns the number of rows computed.

    Args:
        vocabulary_size: V of the tables.
        find: `beam_search` or `sample`.
        names: options with a value for each row.
        settings: pairs of name and value of all other options.
    """
    computed = tf.Variable(0)
    width = dict(settings).get("beam_size") or dict(settings)["num_samples"]

    def counted_step(tokens, index, ancestry, cache):
        computed.assign_add(tf.shape(tokens)[0])
        return table_step(tokens, index, ancestry, cache)

    @tf.function(
        input_signature=[
            tf.TensorSpec([None, NUM_ROWS, vocabulary_size], tf.float32),
            tf.TensorSpec([None], tf.int32),
            {name: OPTION_SPECS[name] for name in names},
        ]
    )
    def run(tables, max_lengths, options):
        computed.assign(0)
        read = tf.zeros([tf.shape(tables)[0], 0, width], tf.int32)
        cache = {"read": read, "tables": tables}
        options = options | dict(settings)
        rules = applied(**{name: options.pop(name) for name in RULES if name in options})
        hypotheses = find(counted_step, cache, max_lengths, rules, **options)
        return hypotheses, computed.read_value()

    return run


def run_search(tables, max_lengths, find, options: dict) -> tuple[Hypotheses, int]:
    """The hypotheses as arrays, and the number of rows computed.

    Lists and arrays among the options have a value for each row.
    """
    by_row = {
        name: np.array(value, OPTION_SPECS[name].dtype.as_numpy_dtype)
        for name, value in options.items()
        if isinstance(value, list | np.ndarray)
    }
    settings = tuple((name, options[name]) for name in options if name not in by_row)
    run = compiled_search(tables.shape[-1], find, tuple(by_row), settings)
    hypotheses, computed = run(tables, np.array(max_lengths, np.int32), by_row)
    return Hypotheses(*(tensor.numpy() for tensor in hypotheses)), int(computed)


def search(tables, max_lengths, **options) -> Hypotheses:
    return run_search(tables, max_lengths, beam_search, {"beam_size": 4} | options)[0]


def count_computed_rows(tables, max_lengths, **options) -> int:
    return run_search(tables, max_lengths, beam_search, {"beam_size": 4} | options)[1]


def hypotheses_of(hypotheses: Hypotheses, row: int) -> list[tuple[int, ...]]:
    """The tokens of each hypothesis of one sentence; only PAD may follow them."""
    pairs = list(zip(hypotheses.tokens[row], hypotheses.lengths[row], strict=True))
    assert all((tokens[length:] == PAD_ID).all() for tokens, length in pairs)
    return [tuple(tokens[:length].tolist()) for tokens, length in pairs]


def random_tables(count: int, vocabulary_size: int, seed: int = 0) -> np.ndarray:
    """Tables from flat to peaked, some of which end early and some late."""
    rng = np.random.default_rng(seed)
    tables = rng.normal(size=(count, NUM_ROWS, vocabulary_size))
    tables *= rng.uniform(0.3, 3.0, size=(count, 1, 1))
    tables[:, :, EOS_ID] += rng.uniform(-3.0, 1.0, size=(count, 1))
    return tables.astype(np.float32)


A = 4  # an ordinary token
# Next-token probabilities by history: A for ever, and hypotheses of EOS alone or after nine A.
ENDLESS = {(A,) * length: {A: 0.999} for length in range(10)}
EARLY_OR_LATE = ENDLESS | {(): {EOS_ID: 0.30, A: 0.13}, (A,) * 9: {EOS_ID: 0.999}}


def table_of(rules: dict[tuple[int, ...], dict[int, float]]) -> np.ndarray:
    """A table [1, NUM_ROWS, 6] from next-token probabilities; PAD has the rest."""
    probabilities = np.zeros([NUM_ROWS, 6])
    assert len({table_row(tokens) for tokens in rules}) == len(rules)
    for tokens, distribution in rules.items():
        probabilities[table_row(tokens), list(distribution)] = list(distribution.values())
    probabilities[:, PAD_ID] = 1.0 - probabilities.sum(axis=-1)
    return np.log(np.maximum(probabilities, 1e-30))[np.newaxis].astype(np.float32)


@dataclass(frozen=True)
class Rules:
    """The rules of one sentence, as the searches with lists follow them."""

    limit: int
    min_length: int = 1
    prefix: tuple[int, ...] = ()
    no_repeat: int = 0
    slots: tuple[int, ...] = ()  # how often each of SLOT_IDS must come
    second: int = PAD_ID  # the token that must come second, if it is not PAD
    banned: tuple[int, ...] = ()  # the token that must not come at each step
    most: int = 99  # how often A may come

    def allows(self, tokens: tuple[int, ...]) -> bool:
        """Whether the last of the tokens may follow the others."""
        token, length = tokens[-1], len(tokens)
        if length >= self.limit:
            return token == EOS_ID
        if length <= len(self.prefix):
            return token == self.prefix[length - 1]
        left = []  # the forms of each slot that must still come
        for number, forms in zip(self.slots, SLOT_IDS.tolist(), strict=False):
            left += [forms] * (number - sum(map(tokens[:-1].count, forms)))
        if left and length + len(left) >= self.limit:
            return token == left[0][-1]
        if length == 2 and self.second != PAD_ID:
            return token == self.second
        if self.slots and token in SLOT_IDS and not any(token in forms for forms in left):
            return False
        if left and token == EOS_ID:
            return False
        if token in (PAD_ID, BOS_ID) or (token == EOS_ID and length < self.min_length):
            return False
        if token in self.banned[length - 1 : length]:
            return False
        if token == A and tokens.count(A) > self.most:
            return False
        size = self.no_repeat
        grams = [tokens[i : i + size] for i in range(length - size + 1)] if size else []
        return not grams or grams.count(grams[-1]) == 1


def extensions(table: np.ndarray, tokens: tuple[int, ...], total: float, rules: Rules):
    """(tokens, log-probability) of everything that may follow, in double precision."""
    logits = table[table_row(tokens)].astype(np.float64)
    log_probs = logits - np.log(np.exp(logits).sum())
    for token in range(len(logits)):
        if rules.allows((*tokens, token)):
            yield (*tokens, token), total + log_probs[token]


def normalised(tokens: tuple[int, ...], total: float, alpha: float) -> float:
    return total / ((5 + len(tokens)) / 6) ** alpha


def list_beam(table, rules: Rules, beam_size: int, alpha: float) -> list[tuple[float, tuple]]:
    """All (score, tokens) finished by a beam that never stops before the limit."""
    beams, finished = [((), 0.0)], []
    num_candidates = 2 * beam_size if beam_size > 1 else 1
    while beams:
        candidates = [pair for beam in beams for pair in extensions(table, *beam, rules)]
        candidates = sorted(candidates, key=lambda pair: -pair[1])[:num_candidates]
        ended = [pair for pair in candidates if pair[0][-1] == EOS_ID]
        finished += [(normalised(*pair, alpha), pair[0]) for pair in ended]
        beams = [pair for pair in candidates if pair[0][-1] != EOS_ID][:beam_size]
    return sorted(finished, reverse=True)


def assert_found(hypotheses: Hypotheses, row: int, expected: list[tuple[float, tuple]]) -> None:
    """The hypotheses of a sentence are the first of `expected`, then fillers."""
    num_hypotheses = hypotheses.scores.shape[1]
    scores, tokens = zip(*(expected + [(NO_SCORE, ())] * num_hypotheses), strict=True)
    assert hypotheses_of(hypotheses, row) == list(tokens[:num_hypotheses])
    np.testing.assert_allclose(
        hypotheses.scores[row], scores[:num_hypotheses], rtol=1e-5, atol=1e-5
    )
