"""A gate for publishing: a new export must not be worse than the published one."""

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tf_transformer.errors import UserError
from tf_transformer.evaluation.comparison import SIGNIFICANT, DevText, paired_bootstrap
from tf_transformer.export.session import SavedModelSession
from tf_transformer.export.versions import read_card

_ROWS = 32


class NotPublishedError(UserError):
    """The new export is worse than the published one."""

    status = 3


@dataclass(frozen=True)
class Gate:
    """The published model that a new export is compared with, and the text to compare them on.

    Attributes:
        published: folder of its SavedModel.
        dev: dev text, with the metric.
        margin: points of the metric that the new export may lose.
    """

    published: Path
    dev: DevText
    margin: float = 0.0

    def compare(self, new: SavedModelSession, card: Mapping[str, Any]) -> dict[str, Any]:
        """Runs both models on the dev text, batch by batch in turn, and compares their scores.

        Args:
            new: the new export.
            card: its model card.

        Returns:
            An entry for the card: scores, p-value, seconds, changed settings.

        Raises:
            NotPublishedError: if the score falls by more than the margin, and the paired
                bootstrap finds the difference significant.
            UserError: if the published model cannot be loaded, or lacks the output.
        """
        metric, output = self.dev.metric, self.dev.output
        with SavedModelSession(self.published) as old:
            default = old.signatures.get("serving_default")
            if default is None or output not in default.outputs:
                raise UserError(f"{self.published} gives no {output}: it cannot be compared.")
            (before, old_seconds), (after, new_seconds) = self._answers(old, new)
        first, second = (metric.corpus_score(texts, None) for texts in (before, after))
        p_value = paired_bootstrap(metric, before, after)
        if second.score + self.margin < first.score and p_value < SIGNIFICANT:
            raise NotPublishedError(
                f"Not published: it is worse than {self.published}. {first.name} "
                f"{second.score:.2f}, before {first.score:.2f}, on {len(before):,} sentences "
                f"(paired bootstrap: p = {p_value:.3f}; margin {self.margin:g})."
            )
        pairs, name = zip(before, after, strict=True), first.name.lower()
        return {
            "published": str(self.published),
            "sentences": len(before),
            name: second.score,
            f"{name}_of_published": first.score,
            "signature": str(metric.get_signature()),
            "p_value": p_value,
            "margin": self.margin,
            f"same_{output}s": sum(one == other for one, other in pairs),
            "seconds": new_seconds,
            "seconds_of_published": old_seconds,
            "changed_settings": _changes(
                _settings(read_card(self.published)), _settings(json.loads(json.dumps(card)))
            ),  # through JSON, so that both have lists instead of tuples
        }

    def _answers(self, *sessions: SavedModelSession) -> list[tuple[list[str], float]]:
        """Returns each model's answers, and the seconds they took."""
        sources, output = self.dev.sources, self.dev.output
        order = sorted(range(len(sources)), key=lambda row: len(sources[row]))
        texts = np.empty([len(sessions), len(sources)], object)
        seconds = [0.0] * len(sessions)
        for start in range(0, len(order), _ROWS):
            rows = order[start : start + _ROWS]
            text = np.array([sources[row] for row in rows], object)
            for number, session in enumerate(sessions):
                begin = time.perf_counter()
                answer = session.run("serving_default", {"text": text}, [output])
                seconds[number] += time.perf_counter() - begin
                texts[number, rows] = [text.decode() for text in answer[output]]
        return list(zip(texts.tolist(), seconds, strict=True))


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
