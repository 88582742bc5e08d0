"""Beam search in NumPy around the decoding step of a model in LiteRT.

B batch, W beam width, C candidates of a sentence; the others as in `decoding.beam_search` and
`decoding.candidates`.
"""

import numpy as np

from tf_transformer.config import BOS_ID, EOS_ID, PAD_ID, DecodingConfig
from tf_transformer.decoding.beam_search import Hypotheses
from tf_transformer.decoding.candidates import BANNED_IDS
from tf_transformer.litert.interpreter import LiteStep

_BANNED = np.isin(np.arange(max(BANNED_IDS) + 2), BANNED_IDS)  # the last: any higher id
_BLOCK = 32  # tokens in a block of `_best_of_many`


def host_search(
    step: LiteStep,
    decoding: DecodingConfig,
    number: int,
    max_lengths: np.ndarray,
    min_lengths: np.ndarray,
    prefix: np.ndarray | None = None,
) -> Hypotheses:
    """Returns the hypotheses that `beam_search` finds, as arrays, in the same order.

    In a TensorFlow graph, the search alone takes a millisecond per step: several times as long
    as the step of a small model in LiteRT.

    Args:
        step: the decoding step of these sentences, at its first position.
        decoding: settings of the search, whose lengths are not used.
        number: N, at most the beam size W.
        max_lengths: int32 [B], length limits.
        min_lengths: int32 [B], minimum numbers of tokens.
        prefix: int32 [B, P], see `beam_search`.
    """
    search = _HostSearch(step, decoding, number, max_lengths, min_lengths, prefix)
    results = [column.copy() for column in search.finished]
    rows = np.arange(len(max_lengths))
    while rows.size:
        search.advance()
        active = search.active()
        if decoding.lookahead:
            search.stop(~active)
        if 4 * np.count_nonzero(active) <= 3 * rows.size:
            for result, column in zip(results, search.finished, strict=True):
                result[rows] = column
            rows = rows[active]
            search.keep(np.flatnonzero(active))
    tokens, lengths, *figures = results
    lowest = np.finfo(np.float32).min
    return Hypotheses(tokens, lengths, *(np.maximum(figure, lowest) for figure in figures))


class _HostSearch:
    """`beam_search.Search` and its `State` in NumPy, for the sentences still being searched."""

    def __init__(
        self,
        step: LiteStep,
        decoding: DecodingConfig,
        number: int,
        max_lengths: np.ndarray,
        min_lengths: np.ndarray,
        prefix: np.ndarray | None,
    ) -> None:
        self._step, self._decoding, self._prefix = step, decoding, prefix
        self._max_lengths, self._min_lengths = max_lengths, min_lengths
        batch, width = len(max_lengths), decoding.beam_size
        longest = max(max_lengths, default=0)
        self._rows = np.arange(batch)[:, np.newaxis]
        self._length = 0  # t, of the L columns of tokens and ancestry
        self._last_tokens = np.full([batch, width], BOS_ID, np.int32)
        self._tokens = np.full([batch, width, longest], PAD_ID, np.int32)
        self._ancestry = np.zeros([batch, width, longest], np.int32)
        self._log_probs = np.full([batch, width], -np.inf, np.float32)
        self._log_probs[:, :1] = 0  # all beams start out equal, so only the first is extended
        impossible = np.full([batch, number], -np.inf, np.float32)
        self.finished: tuple[np.ndarray, ...] = (  # columns of Hypotheses
            np.full([batch, number, longest], PAD_ID, np.int32),
            np.zeros([batch, number], np.int32),
            impossible,
            impossible,
        )

    def keep(self, rows: np.ndarray) -> None:
        """Keeps only the sentences in these rows."""
        self._max_lengths, self._min_lengths = self._max_lengths[rows], self._min_lengths[rows]
        self._rows = self._rows[: len(rows)]
        self._prefix = None if self._prefix is None else self._prefix[rows]
        self._last_tokens, self._tokens = self._last_tokens[rows], self._tokens[rows]
        self._ancestry, self._log_probs = self._ancestry[rows], self._log_probs[rows]
        self.finished = tuple(column[rows] for column in self.finished)
        self._step.keep(rows)

    def stop(self, rows: np.ndarray) -> None:
        """Ends the search of these sentences, even while they stay in the batch."""
        self._log_probs[rows] = -np.inf

    def active(self) -> np.ndarray:
        """Returns bool [B]: whether an alive beam can still enter the N best."""
        lengths = self._max_lengths
        if self._decoding.lookahead:
            lengths = np.minimum(lengths, self._length + self._decoding.lookahead)
        return self.finished[-1][:, -1] < self._log_probs[:, 0] / self._penalty(lengths)

    def _penalty(self, length: np.ndarray | int) -> np.ndarray | np.floating:
        alpha = np.float32(self._decoding.alpha)
        return ((np.float32(5) + np.float32(length)) / np.float32(6)) ** alpha

    def advance(self) -> None:
        """Extends every alive beam by one token."""
        index, self._length = self._length, self._length + 1
        width = self._decoding.beam_size
        self._ancestry[..., index] = np.arange(width)
        logits = self._step(self._last_tokens, index, self._ancestry[..., : index + 1])

        parents, last, log_probs = self._candidates(logits, index)  # [B, C]
        tokens = self._tokens[self._rows, parents]
        tokens[..., index] = last
        ends = last == EOS_ID
        self._log_probs, alive = self._best(np.where(ends, -np.inf, log_probs), width)
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
        decoding, width = self._decoding, self._decoding.beam_size
        count = 2 * width if width > 1 else 1
        k = min(count + len(BANNED_IDS) + 1, logits.shape[-1])
        possible = logits
        if decoding.no_repeat_ngram:
            possible = logits.copy()
            repeats = _repeats(self._tokens[..., :index], decoding.no_repeat_ngram)
            np.put_along_axis(possible, repeats, -np.inf, axis=-1)
        best, tokens = _best_of_many(possible.reshape(-1, possible.shape[-1]), k)
        best, tokens = best.reshape(-1, width, k), tokens.reshape(-1, width, k).astype(np.int32)
        highest = best[..., :1] if possible is logits else logits.max(-1, keepdims=True)
        relative = logits - highest
        sums = np.exp(relative, out=relative).sum(-1, keepdims=True)
        normaliser = highest + np.log(sums)
        banned = _BANNED[np.minimum(tokens, len(_BANNED) - 1)]
        must_continue = self._min_lengths > index + 1
        banned |= must_continue[:, np.newaxis, np.newaxis] & (tokens == EOS_ID)
        log_probs = np.where(banned, -np.inf, best - normaliser)

        forced = np.where(self._max_lengths <= index + 1, EOS_ID, PAD_ID)  # [B], PAD: free
        if self._prefix is not None and index < self._prefix.shape[1]:
            forced = np.where(forced, forced, self._prefix[:, index])
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
