"""Beam search in NumPy around the decoding step of a model in LiteRT.

In a TensorFlow graph, the search alone takes a millisecond per step: several times as long as
the step of a small model in LiteRT. Sizes are those of `decoding.beam_search`.
"""

import functools
from operator import itemgetter

import numpy as np
import tensorflow as tf

from tf_transformer.config import BOS_ID, EOS_ID, PAD_ID, DecodingConfig
from tf_transformer.decoding.beam_search import Hypotheses, State, length_penalty, unbeatable
from tf_transformer.decoding.candidates import BANNED_IDS, Rules, repeating
from tf_transformer.litert.interpreter import CachedStep

_IS_BANNED = np.isin(np.arange(max(BANNED_IDS) + 2), BANNED_IDS)  # the last: any higher id
_BLOCK = 32  # tokens in a block of `_best_of_many`


def numpy_beam_search(
    step: CachedStep,
    decoding: DecodingConfig,
    num_hypotheses: int,
    max_lengths: np.ndarray,
    min_lengths: np.ndarray,
    prefix: np.ndarray | None = None,
    slots: tuple[np.ndarray, np.ndarray] | None = None,
) -> Hypotheses:
    """Returns the hypotheses that `beam_search` finds, as arrays, in the same order.

    The step is at its first position. The lengths in `decoding` are not used: limits are arrays
    [B], as in `beam_search`, and so are `prefix` [B, P] and `slots`: the numbers of each in the
    source [B, 9], and its ids [9, F].
    """
    rules: Rules = {"max_lengths": max_lengths, "min_lengths": min_lengths}
    if prefix is not None:
        rules["prefix"] = prefix
    slot_ids = None
    if slots is not None:
        rules["slots"], slot_ids = slots
    state = _initial_state(rules, decoding.beam_size, num_hypotheses)
    results = Hypotheses(*(column.copy() for column in state.finished))
    while state.rows.size:
        state = _advance(step, state, decoding, slot_ids)
        stopped = _should_stop(state, decoding)
        if decoding.lookahead:  # a stopped sentence stays stopped
            state.log_probs[stopped] = -np.inf
        if 4 * np.count_nonzero(stopped) >= state.rows.size:
            for result, column in zip(results, state.finished, strict=True):
                result[state.rows] = column
            rows = np.flatnonzero(~stopped)
            step.keep(rows)
            state = tf.nest.map_structure(itemgetter(rows), state)
    lowest = np.finfo(np.float32).min
    log_probs, scores = (np.maximum(column, lowest) for column in results[2:])
    return results._replace(log_probs=log_probs, scores=scores)


def _initial_state(rules: Rules, beam_size: int, num_hypotheses: int) -> State:
    batch_size, longest = len(rules["max_lengths"]), max(rules["max_lengths"], default=0)
    impossible = np.full([batch_size, num_hypotheses], -np.inf, np.float32)
    log_probs = np.full([batch_size, beam_size], -np.inf, np.float32)
    log_probs[:, :1] = 0  # all beams start out equal, so only the first is extended
    return State(
        rows=np.arange(batch_size),
        rules=rules,
        last_tokens=np.full([batch_size, beam_size], BOS_ID, np.int32),
        tokens=np.zeros([batch_size, beam_size, 0], np.int32),
        log_probs=log_probs,
        ancestry=np.zeros([batch_size, beam_size, 0], np.int32),
        finished=Hypotheses(
            tokens=np.full([batch_size, num_hypotheses, longest], PAD_ID, np.int32),
            lengths=np.zeros([batch_size, num_hypotheses], np.int32),
            log_probs=impossible,
            scores=impossible,
        ),
        cache=(),  # the step has it
    )


def _should_stop(state: State, decoding: DecodingConfig) -> np.ndarray:
    """Returns bool [B], as `Search.should_stop`."""
    limits = state.rules["max_lengths"]
    if decoding.lookahead:
        limits = np.minimum(limits, state.tokens.shape[-1] + decoding.lookahead)
    limits = limits.astype(np.float32)[:, np.newaxis]
    worst = state.finished.scores[:, -1:]
    return unbeatable(worst, state.log_probs, limits, decoding.alpha)[:, 0]


def _advance(
    step: CachedStep, state: State, decoding: DecodingConfig, slot_ids: np.ndarray | None
) -> State:
    """Extends every alive beam by one token."""
    _, beam_size, index = state.tokens.shape
    ancestry = _append(state.ancestry, np.arange(beam_size))  # -> [B, W, t + 1]
    logits = step(state.last_tokens, index, ancestry)

    parents, last_tokens, log_probs = _candidates(
        logits, state, decoding, slot_ids
    )  # -> [B, C]
    tokens = _append(_take(state.tokens, parents), last_tokens)  # -> [B, C, t + 1]
    ends = last_tokens == EOS_ID
    alive_log_probs, alive = _best(np.where(ends, -np.inf, log_probs), beam_size)  # -> [B, W]
    finished, ended = state.finished, np.where(ends, log_probs, -np.inf)
    if np.any(ended > -np.inf):
        finished = _merged(finished, tokens, ended, decoding.alpha)
    return state._replace(
        last_tokens=_take(last_tokens, alive),
        tokens=_take(tokens, alive),
        log_probs=alive_log_probs,
        ancestry=_take(ancestry, _take(parents, alive)),
        finished=finished,
    )


def _merged(
    finished: Hypotheses, tokens: np.ndarray, log_probs: np.ndarray, alpha: float
) -> Hypotheses:
    """Returns the N best of the finished hypotheses and the candidates [B, C, t] that end."""
    length = tokens.shape[-1]
    lengths = np.full(log_probs.shape, length, np.int32)
    padded = np.full([*lengths.shape, finished.tokens.shape[-1]], PAD_ID, np.int32)
    padded[..., :length] = tokens
    scores = log_probs / length_penalty(np.float32(length), alpha)
    pool = zip(finished, (padded, lengths, log_probs, scores), strict=True)
    columns = [np.concatenate(pair, axis=1) for pair in pool]  # [B, N + C]
    _, best = _best(columns[-1], finished.scores.shape[1])
    return Hypotheses(*(_take(column, best) for column in columns))


def _candidates(
    logits: np.ndarray, state: State, decoding: DecodingConfig, slot_ids: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns parents, last tokens and log-probabilities of the C best, [B, C]."""
    rules, (_, beam_size, index) = state.rules, state.tokens.shape
    count = 2 * beam_size if beam_size > 1 else 1
    k = min(count + len(BANNED_IDS) + 1, logits.shape[-1])
    possible, forbidden, slot = logits, [], np.zeros(0)  # [B, W, V]
    if decoding.no_repeat_ngram:
        forbidden.append(repeating(state.tokens, decoding.no_repeat_ngram, np.where))
    if slot_ids is not None:
        slot, excluded = _next_slot(state, slot_ids)
        forbidden.append(excluded)
    if forbidden:
        possible = logits.copy()
        np.put_along_axis(possible, np.concatenate(forbidden, axis=-1), -np.inf, axis=-1)
    best, tokens = _best_of_many(possible.reshape(-1, possible.shape[-1]), k)
    best = best.reshape(-1, beam_size, k)
    tokens = tokens.reshape(-1, beam_size, k).astype(np.int32)
    highest = best[..., :1] if possible is logits else logits.max(-1, keepdims=True)
    relative = logits - highest
    sums = np.exp(relative, out=relative).sum(-1, keepdims=True)
    normaliser = highest + np.log(sums)  # [B, W, 1]
    banned = _IS_BANNED[np.minimum(tokens, len(_IS_BANNED) - 1)]
    must_continue = rules["min_lengths"] > index + 1
    banned |= must_continue[:, np.newaxis, np.newaxis] & (tokens == EOS_ID)
    log_probs = np.where(banned, -np.inf, best - normaliser)  # [B, W, k]

    for at in zip(*np.nonzero(slot), strict=True):
        tokens[at], log_probs[at] = slot[at], -np.inf
        log_probs[at][0] = logits[at][slot[at]] - normaliser[at][0]
    forced = np.where(rules["max_lengths"] <= index + 1, EOS_ID, PAD_ID)  # [B], PAD: free
    if "prefix" in rules and index < rules["prefix"].shape[1]:
        forced = np.where(forced, forced, rules["prefix"][:, index])
    for row in np.flatnonzero(forced):
        tokens[row], log_probs[row] = forced[row], -np.inf
        log_probs[row, :, 0] = logits[row, :, forced[row]] - normaliser[row, :, 0]

    totals = (state.log_probs[..., np.newaxis] + log_probs).reshape(-1, beam_size * k)
    totals, position = _best(totals, count)  # -> [B, C]
    return position // k, _take(tokens.reshape(-1, beam_size * k), position), totals


def _next_slot(state: State, slot_ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns what slots demand of the next token, as in `decoding.candidates`."""
    equal = state.tokens[..., np.newaxis, :, np.newaxis] == slot_ids[:, np.newaxis]
    left = state.rules["slots"][:, np.newaxis] - np.count_nonzero(equal, axis=(-2, -1))
    waiting = left > 0  # [B, W, 9]
    number = np.where(waiting, left, 0).sum(-1)
    room = state.rules["max_lengths"][:, np.newaxis] - state.tokens.shape[-1]
    is_due = (number > 0) & (number >= room - 1)
    forms = [np.where(waiting, PAD_ID, form) for form in slot_ids.T]
    end = np.where(number > 0, EOS_ID, PAD_ID)[..., np.newaxis]
    first = slot_ids[waiting.argmax(-1), -1]
    return np.where(is_due, first, PAD_ID), np.concatenate([*forms, end], axis=-1)


def _best(values: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the k largest of each row of [B, I], and their indices; ties keep order."""
    order = np.argsort(-values, axis=1, kind="stable")[:, :k]
    return _take(values, order), order


def _best_of_many(values: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the k largest of each row, and their indices; the first wins ties.

    It sorts only the values that reach the k-th largest of the blocks' maxima, which is a lower
    bound on the k-th largest value.
    """
    size = values.shape[1]
    blocks = size // _BLOCK
    maxima = values
    if blocks >= k:
        maxima = values[:, : blocks * _BLOCK].reshape(-1, _BLOCK, blocks).max(axis=1)
    bound = np.partition(maxima, -k, axis=1)[:, -k, np.newaxis]
    survivors = np.flatnonzero(values >= bound)
    row, position = np.divmod(survivors, size)
    order = np.lexsort((-values.ravel()[survivors], row))  # stable: by row, largest first
    rows = _rows(len(values))
    best = position[order[np.searchsorted(row, rows) + np.arange(k)]]
    return values[rows, best], best


def _take(array: np.ndarray, indices: np.ndarray) -> np.ndarray:
    """Gathers from axis 1 for each sentence: [B, I, ...], [B, J] -> [B, J, ...]."""
    return array[_rows(len(array)), indices]


@functools.lru_cache(maxsize=8)
def _rows(size: int) -> np.ndarray:
    """Returns the row numbers [B, 1]; kept, because a step needs them six times."""
    return np.arange(size)[:, np.newaxis]


def _append(sequences: np.ndarray, last: np.ndarray) -> np.ndarray:
    """Appends a token to each sequence: [B, I, t], [B, I] or [I] -> [B, I, t + 1]."""
    longer = np.empty([*sequences.shape[:2], sequences.shape[2] + 1], np.int32)
    longer[..., :-1], longer[..., -1] = sequences, last
    return longer
