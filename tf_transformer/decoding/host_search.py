"""Beam search in NumPy, the twin of `beam_search` for a step that runs outside TensorFlow.

It finds the same hypotheses as `beam_search`, by the same rules and in the same order; a test
checks that the two agree. In a TensorFlow graph, the search alone takes a millisecond per step:
several times as long as the step of a small model in LiteRT. B, W, V, C, N, L, P, t and k are
as in `beam_search` and `candidates`.
"""

from typing import NamedTuple, Protocol

import numpy as np

from tf_transformer.config import BOS_ID, EOS_ID, PAD_ID
from tf_transformer.decoding.beam_search import Hypotheses
from tf_transformer.decoding.candidates import BANNED_IDS

_BANNED = np.isin(np.arange(max(BANNED_IDS) + 2), BANNED_IDS)  # the last: any higher id
_BLOCK = 32  # tokens in a block of `_best_of_many`


class HostStep(Protocol):
    """The decoding step of the sentences being searched, with its cache."""

    def __call__(self, tokens: np.ndarray, index: int, ancestry: np.ndarray) -> np.ndarray:
        """Returns float32 logits [B, W, V]; see `StepFunction` for the arguments."""

    def keep(self, rows: np.ndarray) -> None:
        """Keeps only the sentences in these rows, int [b]."""


class HostRules(NamedTuple):
    """Rules for the next token; see `beam_search`."""

    max_lengths: np.ndarray  # int32 [B]
    prefix: np.ndarray | None = None  # int32 [B, P]
    min_length: int = 0
    no_repeat_ngram: int = 0

    def keep(self, rows: np.ndarray) -> "HostRules":
        """Returns the rules of these rows."""
        prefix = None if self.prefix is None else self.prefix[rows]
        return self._replace(max_lengths=self.max_lengths[rows], prefix=prefix)


def host_search(
    step: HostStep,
    rules: HostRules,
    *,
    beam_size: int,
    num_hypotheses: int,
    alpha: float,
    lookahead: int = 0,
) -> Hypotheses:
    """Returns the hypotheses that `beam_search` finds, as arrays.

    Args:
        step: the decoding step, at its first position.
        rules: rules for each sentence.
        beam_size: W.
        num_hypotheses: N, at most W.
        alpha: exponent of the length penalty.
        lookahead: see `beam_search`.
    """
    search = _Search(step, rules, beam_size, num_hypotheses, alpha)
    results = [column.copy() for column in search.finished]
    rows = np.arange(len(rules.max_lengths))
    while rows.size:
        search.advance()
        active = search.active(lookahead)
        if lookahead:
            search.stop(~active)
        if 4 * np.count_nonzero(active) <= 3 * rows.size:
            for result, column in zip(results, search.finished, strict=True):
                result[rows] = column
            rows = rows[active]
            search.keep(np.flatnonzero(active))
    tokens, lengths, *figures = results
    lowest = np.finfo(np.float32).min
    return Hypotheses(tokens, lengths, *(np.maximum(figure, lowest) for figure in figures))


class _Search:
    """The sentences still being searched; the fields are those of `beam_search.State`."""

    def __init__(
        self, step: HostStep, rules: HostRules, width: int, num_hypotheses: int, alpha: float
    ) -> None:
        batch = len(rules.max_lengths)
        self._step, self._rules, self._width, self._alpha = step, rules, width, alpha
        longest = max(rules.max_lengths, default=0)
        self._rows = np.arange(batch)[:, np.newaxis]
        self._length = 0  # t, of the L columns of tokens and ancestry
        self._last_tokens = np.full([batch, width], BOS_ID, np.int32)
        self._tokens = np.full([batch, width, longest], PAD_ID, np.int32)
        self._ancestry = np.zeros([batch, width, longest], np.int32)
        self._log_probs = np.full([batch, width], -np.inf, np.float32)
        self._log_probs[:, :1] = 0  # all beams start out equal, so only the first is extended
        impossible = np.full([batch, num_hypotheses], -np.inf, np.float32)
        self.finished: tuple[np.ndarray, ...] = (  # columns of Hypotheses
            np.full([batch, num_hypotheses, longest], PAD_ID, np.int32),
            np.zeros([batch, num_hypotheses], np.int32),
            impossible,
            impossible,
        )

    def keep(self, rows: np.ndarray) -> None:
        """Keeps only the sentences in these rows."""
        self._rules, self._rows = self._rules.keep(rows), self._rows[: len(rows)]
        self._last_tokens, self._tokens = self._last_tokens[rows], self._tokens[rows]
        self._ancestry, self._log_probs = self._ancestry[rows], self._log_probs[rows]
        self.finished = tuple(column[rows] for column in self.finished)
        self._step.keep(rows)

    def stop(self, rows: np.ndarray) -> None:
        """Ends the search of these sentences, even while they stay in the batch."""
        self._log_probs[rows] = -np.inf

    def active(self, lookahead: int) -> np.ndarray:
        """Returns bool [B]: whether an alive beam can still enter the N best."""
        lengths = self._rules.max_lengths
        if lookahead:
            lengths = np.minimum(lengths, self._length + lookahead)
        bound = self._log_probs[:, 0] / self._penalty(lengths)
        return self.finished[-1][:, -1] < bound

    def _penalty(self, length: np.ndarray | int) -> np.ndarray | np.floating:
        return ((np.float32(5) + np.float32(length)) / np.float32(6)) ** np.float32(self._alpha)

    def advance(self) -> None:
        """Extends every alive beam by one token."""
        index, self._length = self._length, self._length + 1
        self._ancestry[..., index] = np.arange(self._width)
        logits = self._step(self._last_tokens, index, self._ancestry[..., : index + 1])

        parents, last, log_probs = self._candidates(logits, index)  # [B, C]
        tokens = self._tokens[self._rows, parents]
        tokens[..., index] = last
        ends = last == EOS_ID
        self._log_probs, alive = self._best(np.where(ends, -np.inf, log_probs), self._width)
        self._last_tokens, self._tokens = last[self._rows, alive], tokens[self._rows, alive]
        self._ancestry = self._ancestry[self._rows, parents[self._rows, alive]]
        ended = np.where(ends, log_probs, -np.inf)
        if np.any(ended > -np.inf):
            self._merge(tokens, ended)

    def _merge(self, tokens: np.ndarray, log_probs: np.ndarray) -> None:
        """Keeps the N best of the finished hypotheses and the candidates [B, C, L] that end."""
        lengths = np.full(log_probs.shape, self._length, np.int32)
        ended = tokens, lengths, log_probs, log_probs / self._penalty(self._length)
        pool = [np.concatenate(pair, axis=1) for pair in zip(self.finished, ended, strict=True)]
        _, best = self._best(pool[-1], self.finished[0].shape[1])
        self.finished = tuple(column[self._rows, best] for column in pool)

    def _best(self, values: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns the k largest of each row of [B, I], and their indices; ties keep order."""
        order = np.argsort(-values, axis=1, kind="stable")[:, :k]
        return values[self._rows, order], order

    def _candidates(self, logits: np.ndarray, index: int) -> tuple[np.ndarray, ...]:
        """Returns parents, last tokens and log-probabilities of the C best, [B, C]."""
        width = self._width
        count = 2 * width if width > 1 else 1
        k = min(count + len(BANNED_IDS) + 1, logits.shape[-1])
        rules, possible = self._rules, logits
        if rules.no_repeat_ngram:
            possible = logits.copy()
            repeats = _repeats(self._tokens[..., :index], rules.no_repeat_ngram)
            np.put_along_axis(possible, repeats, -np.inf, axis=-1)
        best, tokens = _best_of_many(possible.reshape(-1, possible.shape[-1]), k)
        best, tokens = best.reshape(-1, width, k), tokens.reshape(-1, width, k).astype(np.int32)
        highest = best[..., :1] if possible is logits else logits.max(-1, keepdims=True)
        relative = logits - highest
        sums = np.exp(relative, out=relative).sum(-1, keepdims=True)
        normaliser = highest + np.log(sums)
        banned = _BANNED[np.minimum(tokens, len(_BANNED) - 1)]
        if rules.min_length > index + 1:
            banned |= tokens == EOS_ID
        log_probs = np.where(banned, -np.inf, best - normaliser)

        forced = np.where(rules.max_lengths <= index + 1, EOS_ID, PAD_ID)  # [B], PAD: free
        if rules.prefix is not None and index < rules.prefix.shape[1]:
            forced = np.where(forced, forced, rules.prefix[:, index])
        for row in np.flatnonzero(forced):
            tokens[row], log_probs[row] = forced[row], -np.inf
            log_probs[row, :, 0] = logits[row, :, forced[row]] - normaliser[row, :, 0]

        totals = (self._log_probs[..., np.newaxis] + log_probs).reshape(-1, width * k)
        totals, position = self._best(totals, count)
        return position // k, tokens.reshape(-1, width * k)[self._rows, position], totals


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
    rows = np.arange(len(values))[:, np.newaxis]
    best = position[order[np.searchsorted(row, rows) + np.arange(k)]]
    return values[rows, best], best


def _repeats(tokens: np.ndarray, size: int) -> np.ndarray:
    """Returns tokens that would repeat an n-gram of a beam, or PAD: [B, W, t] -> [B, W, R]."""
    count = max(tokens.shape[-1] - size + 1, 0)
    repeated = np.full(tokens[..., :count].shape, True)
    for offset in range(size - 1):
        last = tokens[..., count + offset : count + offset + 1]  # [B, W, 1]
        repeated &= tokens[..., offset : count + offset] == last
    return np.where(repeated, tokens[..., size - 1 :], PAD_ID)
