"""Lexicon: the parts of speech of each word in the training trees, in lexicon.json of a run."""

import collections
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from tf_transformer.errors import UserError
from tf_transformer.files import parse_json, write_text
from tf_transformer.tasks.parsing.linearisation import is_bracket, leaf_tag

LEXICON_FILE = "lexicon.json"  # in the run directory
MIN_COUNT = 5  # a word seen less often may have tags that were not seen


@dataclass(frozen=True)
class Lexicon:
    """The tags that a word may have (a tag dictionary: Ratnaparkhi 1996).

    Attributes:
        tags: all that occur in the training trees.
        words: of each word that occurs there at least MIN_COUNT times, those it has.
    """

    tags: tuple[str, ...]
    words: dict[str, tuple[str, ...]]

    @classmethod
    def of_sequences(cls, pairs: Iterable[tuple[str, str]]) -> Self:
        """Learns from sentences and their linearised trees, split at blanks.

        Raises:
            ValueError: if a sequence has not as many tags as its sentence has words.
        """
        seen: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
        for sentence, sequence in pairs:
            tags = (token for token in sequence.split() if not is_bracket(token))
            for word, tag in zip(sentence.split(), tags, strict=True):
                seen[word][tag] += 1
        often = {word: counts for word, counts in seen.items() if counts.total() >= MIN_COUNT}
        return cls(
            tags=tuple(sorted({tag for counts in seen.values() for tag in counts})),
            words={word: tuple(sorted(often[word])) for word in sorted(often)},
        )

    @classmethod
    def load(cls, path: Path) -> Self:
        """Reads a file; UserError if it is missing or damaged."""
        try:
            content = parse_json(path.read_text(encoding="utf-8"))
            words = {word: tuple(tags.split()) for word, tags in content["words"].items()}
            return cls(tuple(content["tags"].split()), words)
        except OSError as error:
            raise UserError(
                f"{path} cannot be read: {error.strerror}. It comes with a run of --task "
                "parsing; `parse --unconstrained` does without."
            ) from None
        except (ValueError, KeyError, TypeError, AttributeError):
            raise UserError(
                f"{path} is damaged. Expected JSON with tags and words, as `train` writes it."
            ) from None

    def save(self, path: Path) -> None:
        """Writes a file, a word a line; UserError if that cannot be."""
        words = {word: " ".join(tags) for word, tags in self.words.items()}
        content = {"tags": " ".join(self.tags), "words": words}
        write_text(path, json.dumps(content, ensure_ascii=False, indent=0) + "\n")

    def tags_of(self, word: str) -> list[str]:
        """Returns the tags seen with a word, all if it is rare.

        Tags that `leaf_tag` changes are left out.
        """
        return [tag for tag in self.words.get(word, self.tags) if leaf_tag(word, tag) == tag]
