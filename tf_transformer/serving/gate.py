"""A gate for publishing: a new export must not translate worse than the one before."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tf_transformer.errors import UserError
from tf_transformer.evaluation.comparison import SIGNIFICANT, Comparison
from tf_transformer.serving.session import SavedModelSession
from tf_transformer.serving.versions import read_card

_ROWS = 32


class NotPublishedError(UserError):
    """The new export translates worse than the published one."""

    status = 3


@dataclass(frozen=True)
class Gate:
    """The published model that a new export is compared with, and the text for it.

    Attributes:
        published: folder of its SavedModel.
        sources: dev sentences.
        references: a translation of each.
        margin: points of BLEU that the new one may lose.
    """

    published: Path
    sources: Sequence[str]
    references: Sequence[str]
    margin: float = 0.0

    def compare(self, new: SavedModelSession, card: Mapping[str, Any]) -> dict[str, Any]:
        """Translates the text with both models, in turns, and compares BLEU.

        Args:
            new: the new export.
            card: its model card.

        Returns:
            The entry of the card: scores, p-value, seconds, changed settings.

        Raises:
            NotPublishedError: if BLEU falls by more than the margin, and the paired bootstrap
                calls the difference significant.
            UserError: if the published model cannot be loaded, or does not take text.
        """
        comparison = Comparison(self.references)
        with SavedModelSession(self.published) as old:
            default = old.signatures.get("serving_default")
            if default is None or "translation" not in default.outputs:
                raise UserError(f"{self.published} translates no text: it cannot be compared.")
            (before, old_seconds), (after, new_seconds) = self._translate(old, new)
        scores = [comparison.score(texts).value for texts in (before, after)]
        p_value = comparison.p_value(before, after)
        if scores[1] + self.margin < scores[0] and p_value < SIGNIFICANT:
            raise NotPublishedError(
                f"Not published: it translates worse than {self.published}. BLEU "
                f"{scores[1]:.2f}, before {scores[0]:.2f}, on {len(self.sources):,} sentences "
                f"(paired bootstrap: p = {p_value:.3f}; margin {self.margin:g})."
            )
        pairs = zip(before, after, strict=True)
        return {
            "published": str(self.published),
            "sentences": len(self.sources),
            "bleu": scores[1],
            "bleu_of_published": scores[0],
            "signature": comparison.signature,
            "p_value": p_value,
            "margin": self.margin,
            "same_translations": sum(one == other for one, other in pairs),
            "seconds": new_seconds,
            "seconds_of_published": old_seconds,
            "changed_settings": _changes(_settings(read_card(self.published)), _settings(card)),
        }

    def _translate(self, *sessions: SavedModelSession) -> list[tuple[list[str], float]]:
        """Returns each model's translations, and the seconds they took."""
        order = sorted(range(len(self.sources)), key=lambda row: len(self.sources[row]))
        results: list[dict[int, str]] = [{} for _ in sessions]
        seconds = [0.0] * len(sessions)
        for start in range(0, len(order), _ROWS):
            rows = order[start : start + _ROWS]
            text = np.array([self.sources[row] for row in rows], object)
            for number, session in enumerate(sessions):
                begin = time.perf_counter()
                answer = session.run("serving_default", {"text": text}, ["translation"])
                seconds[number] += time.perf_counter() - begin
                texts = (each.decode() for each in answer["translation"])
                results[number] |= zip(rows, texts, strict=True)
        sentences = range(len(order))
        return [
            ([texts[row] for row in sentences], spent)
            for texts, spent in zip(results, seconds, strict=True)
        ]


def _settings(card: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Returns the settings of model, training, data and search in a card, by dotted name."""
    flat: dict[str, Any] = {}
    chosen = card if prefix else {key: card.get(key) for key in ("config", "decoding")}
    for name, value in chosen.items():
        if isinstance(value, dict):
            flat |= _settings(value, f"{prefix}{name}.")
        else:
            flat[f"{prefix}{name}"] = value
    return flat


def _changes(before: dict[str, Any], after: dict[str, Any]) -> dict[str, list[Any]]:
    return {
        name: [before.get(name), after.get(name)]
        for name in sorted(before.keys() | after.keys())
        if before.get(name) != after.get(name)
    }
