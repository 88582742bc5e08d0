"""Beam search in NumPy around the decoding step of a model in LiteRT.

In a TensorFlow graph, the search alone takes a millisecond per step: several times as long as
the step of a small model in LiteRT. Sizes are those of `decoding.beam_search`.
"""

import functools
from collections.abc import Sequence
from operator import itemgetter

import numpy as np

from tf_transformer.config import BOS_ID, EOS_ID, PAD_ID, DecodingConfig
from tf_transformer.decoding.hypotheses import (
    BANNED_IDS,
    Hypotheses,
    State,
    length_penalty,
    map_structure,
    unbeatable,
)
from tf_transformer.decoding.rules import NUMPY, Applied, EndsAtLimit, NextToken, Rulebook
from tf_transformer.litert.interpreter import CachedStep

_IS_BANNED = np.isin(np.arange(max(BANNED_IDS) + 2), BANNED_IDS)  # the last: any higher id
_BLOCK = 32  # tokens in a block of `_best_of_many`


def numpy_beam_search(
    step: CachedStep,
    decoding: DecodingConfig,
    num_hypotheses: int,
    max_lengths: np.ndarray,
    rules: Sequence[Applied] = (),
) -> Hypotheses:
    """Returns the hypotheses that `beam_search` finds, as arrays, in the same order.

    The step is at its first position. Of `decoding`, only beam size, alpha and lookahead are
    used: limits and rules are those of `beam_search`, with arrays.
    """
    book, state = _started(max_lengths, rules, decoding.beam_size, num_hypotheses)
    results = Hypotheses(*(column.copy() for column in state.finished))
    while state.rows.size:
        state = _advance(step, book, state, decoding)
        stopped = _should_stop(state, decoding)
        if decoding.lookahead:  # a stopped sentence stays stopped
            state.log_probs[stopped] = -np.inf
        if 4 * np.count_nonzero(stopped) >= state.rows.size:
            for result, column in zip(results, state.finished, strict=True):
                result[state.rows] = column
            rows = np.flatnonzero(~stopped)
            step.keep(rows)
            state = map_structure(itemgetter(rows), state)
    lowest = np.finfo(np.float32).min
    log_probs, scores = (np.maximum(column, lowest) for column in results[2:])
    return results._replace(log_probs=log_probs, scores=scores)


def _started(
    max_lengths: np.ndarray, rules: Sequence[Applied], beam_size: int, num_hypotheses: int
) -> tuple[Rulebook, State]:
    """Returns the rules of a search and its state at t = 0, as `beam_search.started`."""
    rules = [(EndsAtLimit(), ()), *rules]
    book = Rulebook(tuple(rule for rule, _ in rules), NUMPY)
    batch_size, longest = len(max_lengths), max(max_lengths, default=0)
    impossible = np.full([batch_size, num_hypotheses], -np.inf, np.float32)
    log_probs = np.full([batch_size, beam_size], -np.inf, np.float32)
    log_probs[:, :1] = 0  # all beams start out equal, so only the first is extended
    state = State(
        rows=np.arange(batch_size),
        max_lengths=max_lengths,
        contexts=tuple(context for _, context in rules),
        rule_states=((),) * len(rules),
        settings={},
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
    return book, state._replace(rule_states=book.initial_states(state))


def _should_stop(state: State, decoding: DecodingConfig) -> np.ndarray:
    """Returns bool [B], as `Search.should_stop`."""
    limits = state.max_lengths
    if decoding.lookahead:
        limits = np.minimum(limits, state.tokens.shape[-1] + decoding.lookahead)
    limits = limits.astype(np.float32)[:, np.newaxis]
    worst = state.finished.scores[:, -1:]
    return unbeatable(worst, state.log_probs, limits, decoding.alpha)[:, 0]


def _advance(step: CachedStep, book: Rulebook, state: State, decoding: DecodingConfig) -> State:
    """Extends every alive beam by one token."""
    _, beam_size, index = state.tokens.shape
    ancestry = _append(state.ancestry, np.arange(beam_size))  # -> [B, W, t + 1]
    next_token = book.next_token(state, index)
    inputs = state.last_tokens, index, ancestry
    parents, last_tokens, log_probs = _candidates(step, inputs, state.log_probs, next_token)
    finished, ends = state.finished, last_tokens == EOS_ID
    if ends.any():
        tokens = _append(_take(state.tokens, parents), last_tokens)  # -> [B, C, t + 1]
        ended = np.where(ends, log_probs, -np.inf)
        finished = _merged(finished, tokens, ended, decoding.alpha)
        log_probs, alive = _best(np.where(ends, -np.inf, log_probs), beam_size)  # -> [B, W]
        parents, last_tokens = _take(parents, alive), _take(last_tokens, alive)
    else:  # they are in order
        parents, last_tokens = parents[:, :beam_size], last_tokens[:, :beam_size]
        log_probs = log_probs[:, :beam_size]
    state = state._replace(
        rule_states=map_structure(lambda a: _take(a, parents), state.rule_states),
        last_tokens=last_tokens,
        tokens=_append(_take(state.tokens, parents), last_tokens),  # -> [B, W, t + 1]
        log_probs=log_probs,
        ancestry=_take(ancestry, parents),
        finished=finished,
    )
    return state._replace(rule_states=book.next_states(state, index))


def _merged(
    finished: Hypotheses, tokens: np.ndarray, log_probs: np.ndarray, alpha: float
) -> Hypotheses:
    """Returns the N best of the finished hypotheses and the candidates [B, C, t] that end."""
    length = tokens.shape[-1]
    scores = log_probs / length_penalty(np.float32(length), alpha)
    if not (scores > finished.scores[:, -1:]).any():
        return finished
    lengths = np.full(log_probs.shape, length, np.int32)
    padded = np.full([*lengths.shape, finished.tokens.shape[-1]], PAD_ID, np.int32)
    padded[..., :length] = tokens
    pool = zip(finished, (padded, lengths, log_probs, scores), strict=True)
    columns = [np.concatenate(pair, axis=1) for pair in pool]  # [B, N + C]
    _, best = _best(columns[-1], finished.scores.shape[1])
    return Hypotheses(*(_take(column, best) for column in columns))


def _candidates(
    step: CachedStep,
    inputs: tuple[np.ndarray, int, np.ndarray],
    log_probs: np.ndarray,
    next_token: NextToken,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns parents, last tokens and log-probabilities of the C best, [B, C].

    Takes what the step takes, and `log_probs` [B, W] of the beams so far.
    """
    beam_size = log_probs.shape[1]
    count = 2 * beam_size if beam_size > 1 else 1
    assert next_token.forced is not None  # every search has `EndsAtLimit`
    forces = next_token.forced.any()
    restricted = next_token.forbidden is not None or next_token.allowed is not None
    if step.gives_best and not forces and not restricted:
        best, tokens, normaliser = step.best(*inputs)
    else:
        logits = step(*inputs)
        best, tokens, normaliser = _best_tokens(logits, count, next_token)
    k = tokens.shape[-1]
    banned = _IS_BANNED[np.minimum(tokens, len(_IS_BANNED) - 1)]  # [B, W, k]
    if next_token.must_continue is not None:
        banned |= next_token.must_continue[..., np.newaxis] & (tokens == EOS_ID)
    steps = best - normaliser  # [B, W, k]
    steps[banned] = -np.inf
    if forces:
        forced = np.broadcast_to(next_token.forced, log_probs.shape)  # [B, W]
        # Where a token is forced, it becomes the first of k, and the others impossible.
        row, beam = np.nonzero(forced)
        only = forced[row, beam]
        tokens[row, beam], steps[row, beam] = only[:, np.newaxis], -np.inf
        steps[row, beam, 0] = logits[row, beam, only] - normaliser[row, beam, 0]

    totals = (log_probs[..., np.newaxis] + steps).reshape(-1, beam_size * k)
    totals, position = _best(totals, count)  # -> [B, C]
    return position // k, _take(tokens.reshape(-1, beam_size * k), position), totals


def _best_tokens(
    logits: np.ndarray, count: int, next_token: NextToken
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns what `CachedStep.best` does, from logits [B, W, V], without excluded tokens."""
    beam_size, vocabulary_size = logits.shape[1:]
    k = min(count + len(BANNED_IDS) + 1, vocabulary_size)
    possible = _without_excluded(logits, next_token)
    best, tokens = _best_of_many(possible.reshape(-1, vocabulary_size), k)
    best = best.reshape(-1, beam_size, k)
    tokens = tokens.reshape(-1, beam_size, k).astype(np.int32)
    # The sum is over all tokens, also those that are excluded.
    highest = best[..., :1] if possible is logits else logits.max(-1, keepdims=True)
    relative = logits - highest
    sums = np.exp(relative, out=relative).sum(-1, keepdims=True)
    return best, tokens, highest + np.log(sums)


def _without_excluded(logits: np.ndarray, next_token: NextToken) -> np.ndarray:
    """Returns the logits [B, W, V], -inf for tokens that are forbidden or not allowed."""
    if next_token.forbidden is not None:
        logits = logits.copy()
        np.put_along_axis(logits, next_token.forbidden, -np.inf, axis=-1)
    if next_token.allowed is not None:
        logits = np.where(next_token.allowed, logits, np.float32(-np.inf))
    return logits


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
