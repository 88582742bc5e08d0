"""Lexicon of a parsing run: the part-of-speech tags of each word in the training trees."""

import collections
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from tf_transformer.errors import UserError
from tf_transformer.files import write_text
from tf_transformer.tasks.parsing.linearisation import is_bracket, leaf_tag

LEXICON_FILE = "lexicon.json"  # in the run directory
MIN_COUNT = 5  # a rarer word may have tags with which it was not seen


@dataclass(frozen=True)
class Lexicon:
    """Tag dictionary (Ratnaparkhi 1996): the tags that each word may have.

    Attributes:
        tags: all tags of the training trees.
        words: the tags of each word that occurs there at least MIN_COUNT times.
    """

    tags: tuple[str, ...]
    words: dict[str, tuple[str, ...]]

    @classmethod
    def of_sequences(cls, pairs: Iterable[tuple[str, str]]) -> Self:
        """Learns a lexicon from sentences and linearised trees, with tokens split at spaces.

        Raises:
            ValueError: if a tree does not have exactly one tag for each word of its sentence.
        """
        seen: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
        for sentence, sequence in pairs:
            tags = (token for token in sequence.split() if not is_bracket(token))
            for word, tag in zip(sentence.split(), tags, strict=True):
                seen[word][tag] += 1
        frequent = {word: tags for word, tags in seen.items() if tags.total() >= MIN_COUNT}
        return cls(
            tags=tuple(sorted({tag for counts in seen.values() for tag in counts})),
            words={word: tuple(sorted(frequent[word])) for word in sorted(frequent)},
        )

    @classmethod
    def load(cls, path: Path) -> Self:
        """Reads a lexicon file; UserError if it is missing or damaged."""
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            words = {word: tuple(tags.split()) for word, tags in content["words"].items()}
            return cls(tuple(content["tags"].split()), words)
        except OSError as error:
            raise UserError(
                f"{path} cannot be read: {error.strerror}. Training with --task parsing writes "
                "it; `parse --constraint none` does not need it."
            ) from None
        except (ValueError, KeyError, TypeError, AttributeError):
            raise UserError(
                f"{path} is damaged. Expected JSON with tags and words, as written by `train`."
            ) from None

    def save(self, path: Path) -> None:
        """Writes the lexicon, one word per line; UserError if the file cannot be written."""
        words = {word: " ".join(tags) for word, tags in self.words.items()}
        content = {"tags": " ".join(self.tags), "words": words}
        write_text(path, json.dumps(content, ensure_ascii=False, indent=0) + "\n")

    def tags_of(self, word: str) -> list[str]:
        """Returns the tags seen with a word, or all tags if it is rare.

        Tags that `leaf_tag` would change are left out.
        """
        return [tag for tag in self.words.get(word, self.tags) if leaf_tag(word, tag) == tag]
