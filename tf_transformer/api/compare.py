"""Comparison of systems on a test set, which those that are not files translate first."""

import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from tf_transformer.api.load import load
from tf_transformer.config import Config
from tf_transformer.config.data import DataConfig
from tf_transformer.data.vocabulary import usable_tag
from tf_transformer.evaluation.metrics import SACREBLEU, make_metric
from tf_transformer.export.versions import find_export, read_config
from tf_transformer.progress import ProgressBars
from tf_transformer.quiet import import_tensorflow
from tf_transformer.run import Run
from tf_transformer.studies.comparison.results import (
    Comparison,
    System,
    compare,
    cost_of,
    shared_settings,
)

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
) -> Comparison:
    """Compares each system with the first.

    Args:
        paths: the systems; the first is the baseline.
        texts: by path, the translations of those that are files.
        runs: by path, the runs of the others, one per seed; none for an export.
        sources: the text to translate; empty if `runs` is.
        references: one or more sets of references.
        tag: text to put before each source; exports have no tags.
        metrics: names of metrics.
        tokenize: sacreBLEU's tokeniser; by default that of the first run or export.
        most: maximum gains, and maximum losses, to show.
    """
    exports = {path: _config_of(path) for path, seeds in runs.items() if not seeds}
    tags = {
        run.path: usable_tag(tag, run.config.data, run.require_tokenizer())
        for seeds in runs.values()
        for run in seeds
    }
    if tag and exports:
        logger.warning("--tag has no effect on exports: %s", ", ".join(exports))
    if tokenize is None:
        configs = (seeds[0].config if seeds else exports[path] for path, seeds in runs.items())
        data = next((config.data for config in configs if config), DataConfig())
        tokenize = data.bleu_tokenizer
    systems = []
    for path, name in zip(paths, _names(paths), strict=True):
        if path in texts:
            systems.append(System(name, [texts[path]]))
        elif seeds := runs[path]:
            outputs = [_translated(run.path, sources, tags[run.path]) for run in seeds]
            systems.append(System(name, outputs, shared_settings(seeds), cost_of(seeds)))
        else:
            config = exports[path]
            outputs = [_translated(Path(path), sources)]
            systems.append(System(name, outputs, config.flat() if config else {}))
    by_name = {name: make_metric(name, references, tokenize) for name in metrics}
    return compare(systems, by_name, sources, references, most, tokenize)


def _config_of(path: str) -> Config | None:
    export = find_export(Path(path))
    return read_config(export) if export else None


def _names(paths: Sequence[str]) -> list[str]:
    """Shortens paths by their common folder."""
    try:
        common = os.path.commonpath([Path(path).parent for path in paths])
    except ValueError:  # absolute and relative paths
        return [*paths]
    return [os.path.relpath(path, common or ".") for path in paths]


def _translated(path: Path, sources: Sequence[str], tag: str | None = None) -> list[str]:
    import_tensorflow()
    translator = load(path, task="translation", tag=tag)
    with ProgressBars(len(sources)) as bars:
        outputs = translator.translate([*sources], progress=lambda n: bars(str(path), n))
    # Byte pieces can spell line breaks.
    return [each.replace("\r", " ").replace("\n", " ") for each in outputs]
