"""AlignedSpans that belong together in the pairs of an encoded corpus, found by IBM Model 1.

Brown et al. (1993), "The Mathematics of Statistical Machine Translation", Model 1, estimated in
both directions: words whose link has a probability above one half in each are aligned. Words
that are equal on both sides, and occur once on each, are aligned too.

All words of a chunk of pairs stand in flat arrays. P pairs, L links: possible ones of a word of
the source with one of the target of its pair.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple, TypeAlias

import numpy as np

from tf_transformer.base.parallel import at_once, usable_cores
from tf_transformer.data.encoded_corpus import EncodedCorpus
from tf_transformer.data.sentencepiece_model import ModelProto, PieceType
from tf_transformer.data.text import SIDES
from tf_transformer.data.vocabulary import SPACE_PIECE

_ROUNDS = 5  # of expectation and maximisation
_LINKS = 1 << 23  # from which the model is estimated
_CHUNK = 1 << 18  # links computed at once, which fit into the caches of a core
_SURE = 0.5  # above it, a word has one link
_FREQUENT = 1 / 100  # of all words: articles and the like, which are no terms
_LONG_WORD = 6  # pieces on average: the text has no spaces, and each piece is a word
_OF_WORDS = (PieceType.NORMAL, PieceType.BYTE)
_BASE = np.uint64(0x9E3779B97F4A7C15)  # of the hashes, which are polynomials modulo 2 ** 64

# int32 [spans, 5]: start and end in the ids of the source and of the target, and a sum: 1 if
# the words follow a space on both sides, 2 if they are equal.
AlignedSpans: TypeAlias = np.ndarray


class _Words(NamedTuple):
    """The words of one side of some pairs, in order."""

    pairs: np.ndarray  # int64 [words], from 0
    starts: np.ndarray  # int64 [words], index of the first id in its sentence
    ends: np.ndarray
    spaced: np.ndarray  # bool [words], whether a space stands before it
    spelled: np.ndarray  # uint64 [words], hash of the characters
    types: np.ndarray  # uint64 [words], the same without case


class _Pieces(NamedTuple):
    """Facts about each piece of a vocabulary [V]."""

    begins: np.ndarray  # bool, whether a word begins with it
    joins: np.ndarray  # bool, whether it can be in a word: not a punctuation mark or symbol
    sizes: np.ndarray  # int64, characters without the mark of a space
    spelled: np.ndarray  # uint64, hashes
    types: np.ndarray


def _pieces(model: bytes) -> _Pieces:
    """Reads the pieces of a SentencePiece model."""
    pieces = ModelProto.FromString(model).pieces
    texts = [each.piece.removeprefix(SPACE_PIECE) for each in pieces]
    return _Pieces(
        np.array([each.piece.startswith(SPACE_PIECE) for each in pieces]),
        np.array(
            [
                each.type in _OF_WORDS and any(map(str.isalnum, text))
                for each, text in zip(pieces, texts, strict=True)
            ]
        ),
        np.array(list(map(len, texts))),
        np.array(list(map(_hash, texts)), np.uint64),
        np.array([_hash(text.casefold()) for text in texts], np.uint64),
    )


def _hash(text: str) -> int:
    return sum(ord(c) * pow(int(_BASE), i, 1 << 64) for i, c in enumerate(text)) % (1 << 64)


def mined_spans(
    corpus: EncodedCorpus,
    models: Mapping[str, bytes],
    progress: Callable[[int], None] | None = None,
) -> tuple[np.ndarray, AlignedSpans]:
    """Finds the words that belong together in each pair of a corpus.

    Args:
        corpus: the pairs.
        models: SentencePiece's of the source and, if it has another, of the target.
        progress: called with the number of pairs done so far.

    Returns:
        The spans of all pairs in a row, ordered by pair and source, and int64 [P + 1], where
        those of each pair begin.
    """
    pieces = {side: _pieces(models.get(side, models["source"])) for side in SIDES}

    def words(rows: np.ndarray) -> list[_Words]:
        return [_words(*corpus.flat(side, rows), pieces[side]) for side in SIDES]

    # Of pieces, so more than the links, of words.
    lengths = [corpus.lengths(side).astype(np.int64) for side in SIDES]
    sizes = lengths[0] * lengths[1] // 2
    step = -(-int(sizes.sum()) // _LINKS)
    model = _estimated(words(np.arange(0, len(corpus), step)))
    counts = np.zeros(len(corpus), np.int64)
    spans = []

    def aligned(rows: np.ndarray) -> tuple[AlignedSpans, np.ndarray]:
        source, target = words(rows)
        return _aligned(source, target, model)

    for rows, (links, pairs) in at_once(_chunks(sizes), aligned, usable_cores()):
        counts[rows] = np.bincount(pairs, minlength=len(rows))
        spans.append(links)
        if progress:
            progress(int(rows[-1]) + 1)
    return np.concatenate([[0], np.cumsum(counts)]), np.concatenate(spans)


def _chunks(sizes: np.ndarray) -> Iterator[np.ndarray]:
    chunk = np.cumsum(sizes) // _CHUNK
    yield from np.split(np.arange(len(sizes)), np.flatnonzero(np.diff(chunk)) + 1)


def _words(ids: np.ndarray, lengths: np.ndarray, pieces: _Pieces) -> _Words:
    """Returns the words in the ids of sentences of these lengths, all in a row.

    A word is what stands between spaces, without the marks at its ends.
    """
    starts = np.cumsum(lengths) - lengths  # [sentences], in `ids`
    begins = pieces.begins[ids]  # [ids], whether another word begins here
    if begins.sum() * _LONG_WORD < len(ids):
        begins = np.ones_like(begins)
    begins[starts] = True
    word = np.cumsum(begins) - 1  # [ids], the number of the word of each
    # A word is from its first to its last piece that joins, so that marks at its ends are out.
    inner = np.flatnonzero(pieces.joins[ids])
    present, first = np.unique(word[inner], return_index=True)
    last = np.append(first, len(inner))[1:] - 1
    first, last = inner[first], inner[last] + 1
    # `first`, `last`: [words], `last` is the index after the end.
    before = np.maximum(first - 1, 0)  # the mark of a space may be a piece of its own
    lone = pieces.begins[ids[before]] & (pieces.sizes[ids[before]] == 0)
    first = np.where(lone & (word[before] == word[first]), before, first)
    # All pieces from first to last, such as a hyphen between two that join, and their words.
    opened, closed = (np.bincount(at, minlength=len(ids) + 1) for at in (first, last))
    inside = np.flatnonzero(np.cumsum(opened - closed)[:-1])
    of_word = np.searchsorted(present, word[inside])
    # The hash of a word is the sum of those of its pieces, each times _BASE ** (characters of
    # the word before it): the same however the word is cut into pieces.
    before = np.cumsum(pieces.sizes[ids]) - pieces.sizes[ids]  # [ids], characters
    offsets = before[inside] - before[first][of_word]
    powers = np.full(int(offsets.max(initial=0)) + 1, _BASE)
    powers[0] = 1
    powers = np.cumprod(powers)
    edges = np.searchsorted(of_word, np.arange(len(present)))  # where each word begins in it
    hashes = [
        np.add.reduceat(table[ids[inside]] * powers[offsets], edges)
        if len(present)
        else np.zeros(0, np.uint64)
        for table in (pieces.spelled, pieces.types)
    ]
    pairs = np.searchsorted(starts, first, side="right") - 1
    spaced = pieces.begins[ids[first]]
    return _Words(pairs, first - starts[pairs], last - starts[pairs], spaced, *hashes)


class _Model(NamedTuple):
    """Probabilities of translation of known types, and how frequent they are."""

    types: list[np.ndarray]  # uint64 of each side, ascending
    frequent: np.ndarray  # bool, of the types of the source
    cells: np.ndarray  # int64, ascending: source's type times number of target's, plus target's
    forward: np.ndarray  # float32 [cells], of the target given the source
    backward: np.ndarray

    def cell_of(self, source: np.ndarray, target: np.ndarray) -> np.ndarray:
        """Returns the cells of types of the source with types of the target."""
        return source * len(self.types[1]) + target


def _links(source: _Words, target: _Words, number: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the words of all possible links, int64 [L] of source and of target.

    A pair with words a, b of the source and x, y of the target has the links ax, bx, ay, by.
    """
    counts = np.bincount(source.pairs, minlength=number)
    starts = np.cumsum(counts) - counts  # [P], the first word of the source of each pair
    times = counts[target.pairs]  # links of each word of the target
    targets = np.repeat(np.arange(len(times)), times)
    ends = np.cumsum(times)
    # 0, 1, ... for the links of each word of the target: which word of its pair's source.
    within = np.arange(len(targets)) - np.repeat(ends - times, times)
    return np.repeat(starts[target.pairs], times) + within, targets


def _estimated(words: list[_Words]) -> _Model:
    """Estimates Model 1 in both directions, from equal probabilities."""
    # Of each side: its types, the index of each word's type, and how often each type occurs.
    known = [np.unique(side.types, return_inverse=True, return_counts=True) for side in words]
    number = int(max((side.pairs.max(initial=-1) for side in words), default=-1)) + 1
    links = _links(words[0], words[1], number)
    # [L], the types that each link joins; a cell is a pair of types that some link joins.
    types = [inverse[side] for (_, inverse, _), side in zip(known, links, strict=True)]
    width = len(known[1][0]) + 1
    cells, cell = np.unique(types[0] * width + types[1], return_inverse=True)
    of_cell = divmod(cells, width)  # [cells] twice: the types of source and target
    tables = []
    for given, word in ((0, links[1]), (1, links[0])):
        table = np.ones(len(cells), np.float32)
        for _ in range(_ROUNDS):
            # Expectation: each word is shared out among its links, by their probabilities [L].
            expected = table[cell]
            expected /= np.bincount(word, expected)[word]
            # Maximisation: shares of a cell in all that its given type is linked with.
            counts = np.bincount(cell, expected, len(cells))
            table = (counts / np.bincount(of_cell[given], counts)[of_cell[given]]).astype("f4")
        tables.append(np.append(table, 0))
    frequent = known[0][2] > _FREQUENT * known[0][2].sum()
    # The largest number ends each, so that what is unknown is found there.
    last = [
        np.append(one, np.iinfo(one.dtype).max) for one in (known[0][0], known[1][0], cells)
    ]
    return _Model(last[:2], np.append(frequent, False), last[2], *tables)


def _aligned(source: _Words, target: _Words, model: _Model) -> tuple[AlignedSpans, np.ndarray]:
    """Returns the spans of aligned words of some pairs, and the pair of each."""
    number = int(max(source.pairs.max(initial=-1), target.pairs.max(initial=-1))) + 1
    links = _links(source, target, number)
    known = []  # of each side: the type of each word in the model, or -1
    for side, types in zip((source, target), model.types, strict=True):
        at = np.searchsorted(types, side.types)
        known.append(np.where(types[at] == side.types, at, -1))
    cell = model.cell_of(*(types[side] for types, side in zip(known, links, strict=True)))
    at = np.searchsorted(model.cells, cell)  # [L]
    unknown = model.cells[at] != cell
    for word, types in zip(links, known, strict=True):
        unknown |= types[word] < 0
    # Sure is what has more than half of the probability in both directions, and is no article.
    sure = ~model.frequent[known[0][links[0]]]
    for word, table in ((links[1], model.forward), (links[0], model.backward)):
        probability = np.where(unknown, 0, table[at]).astype(np.float64)
        sure &= probability > _SURE * np.bincount(word, probability)[word]
    # Equal words count if neither has another equal word in the pair.
    equal = source.spelled[links[0]] == target.spelled[links[1]]
    for word in links:
        equal &= np.bincount(word, equal)[word] == 1
    for word in links:  # equality decides
        sure &= ~(np.bincount(word, equal)[word] > 0)
    # By words of the source, which are in the order of pairs.
    chosen = np.flatnonzero(sure | equal)
    order = np.argsort(links[0][chosen], kind="stable")
    first, second = (side[chosen[order]] for side in links)
    facts = (source.spaced[first] & target.spaced[second]) + 2 * equal[chosen[order]]
    of_source, of_target = (source.starts, source.ends), (target.starts, target.ends)
    columns = [table[first] for table in of_source] + [table[second] for table in of_target]
    return np.stack([*columns, facts], axis=1).astype(np.int32), source.pairs[first]
