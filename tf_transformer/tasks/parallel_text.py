"""Conversion of a task's data files to parallel text in its run."""

import dataclasses
import logging
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from tf_transformer.config import DataConfig
from tf_transformer.errors import UserError
from tf_transformer.files import replacing, sha256, write_text

logger = logging.getLogger(__name__)


def require_files(data: DataConfig, task: str, content: str) -> None:
    """Raises UserError unless --train and --valid name files, without languages.

    Args:
        data: section of the configuration.
        task: name that begins the message, such as "Parsing".
        content: description of the files' content.
    """
    if not (data.train and data.valid) or data.source or data.target:
        names = ("train", "valid", "source", "target")
        given = [f"--{name}" for name in names if getattr(data, name)]
        raise UserError(
            f"{task} needs --train FILE and --valid FILE of {content}, and no "
            f"--source or --target. Received: {', '.join(given) or 'none of them'}."
        )
    for name in ("tag", "separate_vocabularies"):
        if value := getattr(data, name):
            raise UserError(f"data.{name} is only for --task translation. Received: {value}.")


def write_parallel_text(
    data: DataConfig,
    folder: Path,
    sides: tuple[str, str],
    read_pairs: Callable[[Path], Iterator[tuple[str, str]]],
) -> DataConfig:
    """Writes data files into `folder` as parallel text; returns the data with the new paths.

    Line n holds the n-th pair of its file. Text written earlier from the same files is kept.

    Args:
        data: settings whose `train` and `valid` name files.
        folder: the folder to write into.
        sides: the names of source and target.
        read_pairs: reads the pairs of a file.

    Raises:
        UserError: if a file cannot be read or parsed.
    """

    def write(file: Path, prefix: Path) -> str:
        """Writes PREFIX.SIDE for both sides, and a stamp with hashes of input and output."""
        stamp, digest = Path(f"{prefix}.sha256"), _digest(file)
        sources, targets = (Path(f"{prefix}.{side}") for side in sides)
        if _is_unchanged(stamp, digest, (sources, targets)):
            return str(prefix)
        with (
            replacing(sources) as source_path,
            replacing(targets) as target_path,
            source_path.open("w", encoding="utf-8") as source_file,
            target_path.open("w", encoding="utf-8") as target_file,
        ):
            for source, target in read_pairs(file):
                source_file.write(f"{source}\n")
                target_file.write(f"{target}\n")
        write_text(stamp, digest + _digests((sources, targets)))
        return str(prefix)

    train, valid = (
        tuple(
            write(Path(name), folder / f"{split}-{number}")
            for number, name in enumerate(getattr(data, split), start=1)
        )
        for split in ("train", "valid")
    )
    return dataclasses.replace(data, train=train, valid=valid, source=sides[0], target=sides[1])


def _is_unchanged(stamp: Path, digest: str, written: Sequence[Path]) -> bool:
    """Tells by the stamp whether `written` comes from the same file and is undamaged."""
    try:
        stamped = stamp.read_text()
        damaged = stamped != digest + _digests(written)
    except (OSError, UnicodeDecodeError):
        return False
    if damaged and stamped.startswith(digest):
        logger.warning("%s and %s are damaged: written again", *written)
    return not damaged


def _digests(written: Sequence[Path]) -> str:
    return "".join(f"{sha256(path)}\n" for path in written)


def _digest(path: Path) -> str:
    try:
        return f"{sha256(path)}\n"
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror or error}.") from None
