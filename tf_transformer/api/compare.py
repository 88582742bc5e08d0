"""Comparison of systems that are translated first: runs, exports and files."""

import functools
import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from tf_transformer.base.output import ProgressBars, ReportPart, single_line
from tf_transformer.config.config import DataConfig
from tf_transformer.data.vocabulary import usable_tag
from tf_transformer.evaluation import SACREBLEU, make_metric, tokenizer_for
from tf_transformer.export.card import config_in, read_card
from tf_transformer.export.versions import find_export
from tf_transformer.loading.load import load
from tf_transformer.reports.comparison import System, compare_outputs, shared_settings
from tf_transformer.run import Run

logger = logging.getLogger(__name__)


def compare_systems(
    paths: Sequence[str],
    texts: Mapping[str, Sequence[str]],
    runs: Mapping[str, Sequence[Run]],
    sources: Sequence[str],
    references: Sequence[Sequence[str]],
    *,
    tag: str | None = None,
    metrics: Sequence[str] = tuple(SACREBLEU),
    tokenize: str | None = None,
    most: int = 5,
) -> list[ReportPart]:
    """Compares each system with the first; returns a report in Markdown, for `output.joined`.

    By path, `texts` has the translations of the systems that are files, and `runs` the runs of
    the others, one per seed, or none for an export. Without runs, `sources` is empty. The tag,
    which exports lack, stands before each source. The default of `tokenize` is that of the
    first run or export. At most `most` gains, and losses, are shown.
    """
    found = {path: find_export(Path(path)) for path, seeds in runs.items() if not seeds}
    exports = {path: config_in(read_card(one)) if one else None for path, one in found.items()}
    tags = {
        run.path: usable_tag(tag, run.config.data, run.require_tokenizer())
        for seeds in runs.values()
        for run in seeds
    }
    if tag and exports:
        logger.warning("`tag` has no effect on exports: %s", ", ".join(exports))
    if tokenize is None:
        configs = (seeds[0].config if seeds else exports[path] for path, seeds in runs.items())
        data = next((config.data for config in configs if config), DataConfig())
        tokenize = tokenizer_for(data.bleu_tokenizer, references[0])
    systems = []
    for path, name in zip(paths, _names(paths), strict=True):
        if path in texts:
            systems.append(System(name, [texts[path]]))
        elif seeds := runs[path]:
            outputs = [_load_and_translate(run.path, sources, tags[run.path]) for run in seeds]
            systems.append(System(name, outputs, shared_settings(seeds)))
        else:
            config = exports[path]
            outputs = [_load_and_translate(Path(path), sources)]
            systems.append(System(name, outputs, config.flat() if config else {}))
    by_name = {name: make_metric(name, references, tokenize) for name in metrics}
    return compare_outputs(systems, by_name, sources, references, most, tokenize)


def _names(paths: Sequence[str]) -> list[str]:
    """Shortens paths by their common folder."""
    try:
        common = os.path.commonpath([Path(path).parent for path in paths])
    except ValueError:  # absolute and relative paths
        return [*paths]
    return [os.path.relpath(path, common or ".") for path in paths]


def _load_and_translate(
    path: Path, sources: Sequence[str], tag: str | None = None
) -> list[str]:
    return translated_lines(load(path, task="translation", tag=tag), sources, str(path))


def translated_lines(
    translator, sources: Sequence[str], label: str = "translated"
) -> list[str]:
    """Translates sentences below a bar named `label`; returns a single line for each."""
    with ProgressBars(len(sources)) as bars:
        report = functools.partial(bars, label)
        return [*map(single_line, translator.translate([*sources], progress=report))]
