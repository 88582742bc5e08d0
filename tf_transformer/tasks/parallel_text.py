"""Files of trees or labelled sentences, written into a run as parallel text."""

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path

from tf_transformer.base.errors import UserError
from tf_transformer.config import DataConfig
from tf_transformer.data.text import write_pairs


def require_files(data: DataConfig, task: str, content: str) -> None:
    """Raises UserError unless --train and --valid name files, without languages.

    Args:
        data: section of the configuration.
        task: name that begins the message, such as "Parsing".
        content: description of the files' content.
    """
    if not (data.train and data.valid) or data.source or data.target:
        names = ("train", "valid", "source", "target")
        named = [f"--{name}" for name in names if getattr(data, name)]
        raise UserError(
            f"{task} needs --train FILE and --valid FILE of {content}, and no "
            f"--source or --target. Received: {', '.join(named) or 'none of them'}."
        )
    for name in ("tag", "separate_vocabularies", "join", "caps"):
        if value := getattr(data, name):
            raise UserError(f"data.{name} is only for --task translation. Received: {value}.")


def write_parallel_text(
    data: DataConfig,
    folder: Path,
    sides: tuple[str, str],
    read_pairs: Callable[[Path], Iterator[tuple[str, str]]],
    *,
    may_write: bool = True,
) -> DataConfig:
    """Writes data files into `folder` as parallel text; returns the data with the new paths.

    Line n holds the n-th pair of its file. Files that already have the right content are not
    touched.

    Args:
        data: settings whose `train` and `valid` name files.
        folder: the folder to write into.
        sides: the names of source and target.
        read_pairs: reads the pairs of a file.
        may_write: False to only return the paths.

    Raises:
        UserError: if a file cannot be read or parsed.
    """

    def write(file: Path, prefix: Path) -> str:
        return write_pairs(prefix, sides, read_pairs(file)) if may_write else str(prefix)

    train, valid = (
        tuple(
            write(Path(name), folder / f"{split}-{number}")
            for number, name in enumerate(getattr(data, split), start=1)
        )
        for split in ("train", "valid")
    )
    return dataclasses.replace(data, train=train, valid=valid, source=sides[0], target=sides[1])
