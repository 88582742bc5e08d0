"""Files of a task written as parallel text into its run, for all that reads parallel text."""

import dataclasses
import logging
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from tf_transformer.config import DataConfig
from tf_transformer.errors import UserError
from tf_transformer.files import replacing, sha256, write_text

logger = logging.getLogger(__name__)

Pairs = Iterator[tuple[str, str]]


def require_files(data: DataConfig, task: str, content: str) -> None:
    """Raises UserError unless --train and --valid name files, without languages.

    Args:
        data: of the configuration.
        task: as a sentence begins, such as "Parsing".
        content: what the files have in them.
    """
    if not (data.train and data.valid) or data.source or data.target:
        names = ("train", "valid", "source", "target")
        given = [f"--{name}" for name in names if getattr(data, name)]
        raise UserError(
            f"{task} needs --train FILE and --valid FILE of {content}, and no "
            f"--source and --target. Received: {', '.join(given) or 'none of them'}."
        )
    for name in ("tag", "separate_vocabularies", "subword_sampling"):
        if value := getattr(data, name):
            raise UserError(f"data.{name} is for --task translation. Received: {value}.")


def write_parallel_text(
    data: DataConfig,
    folder: Path,
    sides: tuple[str, str],
    read_pairs: Callable[[Path], Pairs],
    version: str = "1",
) -> DataConfig:
    """Writes the files of the data into `folder` as parallel text; returns the data with these.

    Line n is of the n-th pair of the file. What is there already of the same files is left as
    it is.

    Args:
        data: whose `train` and `valid` are files.
        folder: to write into.
        sides: what source and target are called.
        read_pairs: reads a file.
        version: of what `read_pairs` makes; another one makes the text of older runs again.

    Raises:
        UserError: if a file cannot be read, or as `read_pairs` has it.
    """

    def written(name: str, prefix: Path) -> str:
        _write_text(Path(name), prefix, sides, read_pairs, version)
        return str(prefix)

    train, valid = (
        tuple(
            written(name, folder / f"{split}-{number}")
            for number, name in enumerate(getattr(data, split), start=1)
        )
        for split in ("train", "valid")
    )
    return dataclasses.replace(data, train=train, valid=valid, source=sides[0], target=sides[1])


def _write_text(
    file: Path,
    prefix: Path,
    sides: tuple[str, str],
    read_pairs: Callable[[Path], Pairs],
    version: str,
) -> None:
    """Writes PREFIX.SIDE for both sides, and the hashes of the file and of what is written."""
    stamp, digest = Path(f"{prefix}.sha256"), _digest(file, version)
    sources, targets = (Path(f"{prefix}.{side}") for side in sides)
    if _is_as_written(stamp, digest, (sources, targets)):
        return
    with (
        replacing(sources) as left,
        replacing(targets) as right,
        left.open("w", encoding="utf-8") as one,
        right.open("w", encoding="utf-8") as two,
    ):
        for source, target in read_pairs(file):
            one.write(f"{source}\n")
            two.write(f"{target}\n")
    write_text(stamp, digest + _digests((sources, targets)))


def _is_as_written(stamp: Path, digest: str, written: Sequence[Path]) -> bool:
    """Tells whether `written` comes from the same file and is undamaged, by its stamp.

    Stamps of earlier versions hold the hash of the file alone.
    """
    try:
        stamped = stamp.read_text()
        damaged = stamped != digest and stamped != digest + _digests(written)
    except (OSError, UnicodeDecodeError):
        return False
    if damaged and stamped.startswith(digest):
        logger.warning("%s and %s are damaged: written again", *written)
    return not damaged


def _digests(written: Sequence[Path]) -> str:
    return "".join(f"{sha256(path)}\n" for path in written)


def _digest(path: Path, version: str) -> str:
    try:
        return f"{version} {sha256(path)}\n"
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror or error}.") from None
