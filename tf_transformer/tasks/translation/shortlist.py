"""Learning a run's shortlist from parallel text, and measuring its coverage of other text."""

import dataclasses
import functools
import itertools
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tensorflow as tf

from tf_transformer.config import EOS_ID, PAD_ID
from tf_transformer.data import builtin
from tf_transformer.data.corpora import all_pairs, corpora, is_table, split_name
from tf_transformer.data.encoded import EncodedCorpus
from tf_transformer.data.encoding import encode_corpus
from tf_transformer.data.tokenizer import Tokenizer
from tf_transformer.decoding.batches import by_length
from tf_transformer.decoding.shortlist import SPECIAL_IDS, Shortlist
from tf_transformer.errors import UserError
from tf_transformer.run import Run
from tf_transformer.tasks.record import Progress
from tf_transformer.tasks.translation.translation_table import (
    Pairs,
    model1,
    most_probable,
    target_counts,
)

HELD_OUT = 50  # one pair in so many is held out if there is no dev set
_POSITIONS = 1024  # source tokens per batch, with padding


@dataclass(frozen=True)
class Coverage:
    """Coverage of targets by the shortlists of their sources."""

    covered: int  # target tokens in the shortlist of their source, without EOS
    tokens: int  # all target tokens, without EOS
    candidates: int  # total size of the shortlists of all sentences
    sentences: int

    @property
    def share(self) -> float:
        """Share of covered target tokens."""
        return self.covered / max(self.tokens, 1)

    @property
    def mean_candidates(self) -> float:
        """Mean size of a sentence's shortlist."""
        return self.candidates / max(self.sentences, 1)


def learn(
    pairs: Pairs, vocab_size: int, translations: int, frequent: int, progress: Progress
) -> Shortlist:
    """Learns `translations` targets of each source token and the `frequent` commonest ones."""
    links = model1(pairs, vocab_size, progress)
    table = most_probable(links, vocab_size, min(translations, vocab_size))
    counts = target_counts(pairs, vocab_size)
    counts[list(SPECIAL_IDS)] = 0
    order = np.argsort(-counts, kind="stable")[:frequent]
    return Shortlist(table, order[counts[order] > 0])


def coverage(shortlist: Shortlist, pairs: Pairs) -> Coverage:
    """Measures the share of target tokens in the shortlists of their sources."""
    members_of = tf.function(
        shortlist.members, [tf.TensorSpec([None, None], tf.int32)], autograph=False
    )
    counts = np.zeros(3, np.int64)
    lengths = pairs.corpus.source_lengths[pairs.rows]
    for batch in by_length(lengths.tolist(), _POSITIONS):
        rows = pairs.rows[batch]
        source = pairs.corpus.padded("source", rows, pairs.corpus.source_lengths[rows].max())
        target = pairs.corpus.padded("target", rows, pairs.corpus.target_lengths[rows].max())
        members = members_of(source).numpy()
        word = (target != PAD_ID) & (target != EOS_ID)
        hits = np.take_along_axis(members, target, axis=1) & word
        counts += hits.sum(), word.sum(), members.sum()
    covered, tokens, candidates = counts.tolist()
    return Coverage(covered, tokens, candidates, len(pairs.rows))


def own_pairs(run: Run, number: int) -> tuple[Pairs, Pairs]:
    """Opens at most `number` of a run's training pairs, and its dev set.

    Raises:
        UserError: if the run no longer has them.
    """
    try:
        train, valid = (EncodedCorpus.open(run.data / name) for name in ("train", "valid"))
    except UserError as error:
        raise UserError(
            f"{error} Or give --train PREFIX, with a file PREFIX.LANG or PREFIX.LANG.gz for "
            "each language."
        ) from None
    chosen = _evenly_spaced(len(train), number)
    return Pairs(train, chosen), Pairs(valid, np.arange(len(valid)))


@contextmanager
def pairs_of_files(
    run: Run, prefixes: Sequence[str], number: int, progress: Progress
) -> Iterator[tuple[Pairs, Pairs]]:
    """Encodes at most `number` pairs of text files; yields training and held-out pairs.

    Raises:
        UserError: if a file is missing, files differ in length, or there are fewer than two
            pairs.
    """
    data = run.config.data
    if not data.source and run.has_no_text:
        for name in prefixes:
            path, languages = split_name(name, data)
            if not (any(languages) or is_table(path)):
                raise UserError(
                    f"{run.path} has no record of its languages: give them as "
                    f"PREFIX:SOURCE-TARGET, such as --train {name}:en-de. Received: {name}."
                )
    elif not data.source:
        source, target = builtin.LANGUAGES
        data = dataclasses.replace(data, source=source, target=target)
    texts = corpora(prefixes, data)
    for text in texts:
        text.check()
    chosen = np.zeros(sum(map(len, texts)), bool)
    chosen[_evenly_spaced(len(chosen), number)] = True
    with tempfile.TemporaryDirectory() as folder:
        corpus = encode_corpus(
            [itertools.compress(all_pairs(texts), chosen)],
            Tokenizer(run.require_tokenizer()),
            Path(folder, "train"),
            max_length=data.max_length,
            max_ratio=data.max_ratio,
            progress=functools.partial(progress, "tokenising"),
        )
        held_out = np.arange(len(corpus)) % HELD_OUT == 0
        if held_out.all():
            raise UserError("--train must have at least two usable pairs. Received: one.")
        yield Pairs(corpus, np.flatnonzero(~held_out)), Pairs(corpus, np.flatnonzero(held_out))


def _evenly_spaced(size: int, number: int) -> np.ndarray:
    """Returns `number` evenly spaced integers below `size`, or all if they are fewer."""
    number = min(size, number)
    return np.arange(number) * size // max(number, 1)
