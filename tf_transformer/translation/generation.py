"""Synthetic pairs: text and its machine translation, generated shard by shard.

Translations used as sources for the reverse direction are back-translation (Sennrich et al.
2016; sampled by Edunov et al. 2018); used as targets for a smaller model they are
sequence-level distillation (Kim and Rush 2016).
"""

import dataclasses
import gzip
import json
import logging
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tf_transformer.base.errors import UserError
from tf_transformer.base.files import locked, parse_json, replacing, write_text
from tf_transformer.config import UNK_ID, SamplingConfig
from tf_transformer.data.text import NOT_TEXT, in_chunks, is_visible
from tf_transformer.decoding.interface import Translation
from tf_transformer.translation.translator import Translator

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Filters:
    """Limits that a pair must meet to be kept."""

    max_tokens: int  # of the longer side, with EOS
    max_ratio: float  # of the longer to the shorter side, in tokens with EOS
    min_log_prob: float  # mean of the translation's tokens

    def reason(self, text: str, length: int, translation: Translation) -> str:
        """Returns the first reason to drop a pair; "" to keep it."""
        shorter, longer = sorted((length, translation.num_tokens))
        reasons = {
            "empty": not (is_visible(text) and is_visible(translation)),
            "with a TAB or an end of line": bool({*"\t\r\n"} & {*text, *translation}),
            "not text (U+FFFD, a control character, an unknown piece)": (
                UNK_ID in translation.tokens
                or any(NOT_TEXT.search(side) for side in (text, translation))
            ),
            f"longer than {self.max_tokens} tokens": longer > self.max_tokens,
            f"with a length ratio above {self.max_ratio:g}": longer > self.max_ratio * shorter,
            "copied": translation.copies(text),
            f"less probable than {self.min_log_prob:g} a token": (
                translation.is_less_probable_than(self.min_log_prob)
            ),
        }
        return next((reason for reason, applies in reasons.items() if applies), "")


@dataclass(frozen=True, kw_only=True)
class GenerationSettings:
    """Everything that the pairs depend on."""

    filters: Filters
    back: bool = False  # whether the translations become the sources of the pairs
    sampling: SamplingConfig | None = None  # None searches for the best
    shard_lines: int = 10_000
    # Identities of text, weights and so on, by their names in messages.
    origin: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> str:
        """Returns the settings as JSON."""
        values = dataclasses.asdict(self)
        return json.dumps(values.pop("origin") | values, indent=2, sort_keys=True) + "\n"


def generate(
    translator: Translator,
    lines: Iterable[str],
    output: Path,
    settings: GenerationSettings,
    progress: Callable[[int], None] | None = None,
) -> Counter[str]:
    """Translates lines and writes the pairs that pass the filters as a table, .tsv or .tsv.gz.

    Finished shards stay in OUTPUT.shards until all are done; an interrupted run resumes there.
    Returns the numbers of lines read, kept, and dropped for each reason. Raises UserError if
    there are shards of other settings, or a file cannot be written.
    """
    folder = output.with_name(f"{output.name}.shards")
    shards: list[Path] = []
    total: Counter[str] = Counter()
    with locked(folder):
        _check_settings(folder, settings)
        for number, chunk in enumerate(in_chunks(lines, settings.shard_lines)):
            shards.append(folder / f"{number:06d}.tsv")
            if not shards[-1].exists():
                _make_shard(translator, chunk, shards[-1], settings)
            total.update(parse_json(shards[-1].with_suffix(".json").read_text("utf-8")))
            if progress is not None:
                progress(total["read"])
        _join(shards, output)
        shutil.rmtree(folder)
    return total


def _check_settings(folder: Path, settings: GenerationSettings) -> None:
    """Writes the settings into a new folder; refuses a folder with others."""
    file, text = folder / "recipe.json", settings.to_json()
    if not file.exists():
        write_text(file, text)
        return
    before, now = parse_json(file.read_text("utf-8")), parse_json(text)
    if different := [name for name in now if before.get(name) != now[name]]:
        raise UserError(
            f"{folder} holds shards generated with a different {different[0]}. Give the same "
            "files and options to resume, or delete it."
        )
    logger.info("resuming with the shards in %s", folder)


def _make_shard(
    translator: Translator, lines: Sequence[str], path: Path, settings: GenerationSettings
) -> None:
    """Writes a shard's counts before its pairs: a shard with pairs is complete."""
    sampling = settings.sampling
    sampled = {"sample": True} | dataclasses.asdict(sampling) if sampling else {}
    translations = translator.translate([*lines], **sampled)
    lengths = [len(ids) + 1 for ids in translator.tokenizer.ids(lines)]  # with EOS, uncut
    limit = translator.codec.source_limit
    counts: Counter[str] = Counter(read=len(lines))
    rows = []
    for text, length, best in zip(lines, lengths, translations, strict=True):
        reason = settings.filters.reason(text, length, best)
        if not reason and length > limit:
            reason = f"cut at {limit} tokens, the limit of the model"
        counts[reason or "kept"] += 1
        if not reason:
            pair = (best, text) if settings.back else (text, best)
            rows.append("\t".join(pair) + "\n")
    write_text(path.with_suffix(".json"), json.dumps(counts) + "\n")
    write_text(path, "".join(rows))


def _join(shards: Sequence[Path], output: Path) -> None:
    with replacing(output) as temporary, temporary.open("wb") as file:
        # No name or time in the header, so that the same pairs give the same bytes.
        stream = (
            gzip.GzipFile("", "wb", fileobj=file, mtime=0) if output.suffix == ".gz" else file
        )
        for shard in shards:
            with shard.open("rb") as pairs:
                shutil.copyfileobj(pairs, stream)
        stream.close()


def summary(counts: Counter[str]) -> str:
    """Formats a line such as "9 lines read, 8 pairs kept; dropped: 1 empty"."""
    dropped = [
        f"{count:,} {reason}"
        for reason, count in counts.items()
        if reason not in ("read", "kept") and count
    ]
    kept = f"{counts['read']:,} lines read, {counts['kept']:,} pairs kept"
    return f"{kept}; dropped: {', '.join(dropped)}" if dropped else kept
