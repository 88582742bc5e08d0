"""Text files of a run, with hashes of their content that reveal changes."""

import gzip
import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from tf_transformer.config import DataConfig
from tf_transformer.data.corpora import corpora
from tf_transformer.data.corpus import read_errors

Role = Literal["train", "valid"]
ROLES: dict[Role, str] = {"train": "training text", "valid": "dev text"}


def content_hash(path: Path) -> str:
    """Returns the SHA-256 of a file's content, unpacked if it is a .gz.

    Raises:
        UserError: if it cannot be read.
    """
    opened = gzip.open if path.suffix == ".gz" else open
    with read_errors(path), opened(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def text_files(data: DataConfig, role: Role) -> list[Path]:
    """Lists the files of a configuration, sources before targets; none for the built-in corpus.

    In a configuration without languages, the names are files, not corpora.

    Raises:
        UserError: if a corpus lacks a file.
    """
    names = getattr(data, role)
    if not data.source:
        return [Path(name) for name in names]
    texts = corpora(names, data)
    sources = [text.source for text in texts]
    return [*sources, *(text.target for text in texts if not text.is_table)]


def identity(files: Sequence[Path]) -> str:
    """Returns a hash of the content of files, in order; "" if there are none."""
    if not files:
        return ""
    hashes = "\n".join(map(content_hash, files))
    return hashlib.sha256(hashes.encode()).hexdigest()[:16]
