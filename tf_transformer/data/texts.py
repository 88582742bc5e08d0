"""Text files of a run, with hashes of their content that reveal changes."""

import gzip
import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self

from tf_transformer.config import DataConfig
from tf_transformer.data.corpora import corpora
from tf_transformer.data.corpus import read_errors

Role = Literal["train", "valid"]
ROLES: tuple[Role, Role] = ("train", "valid")


@dataclass(frozen=True)
class Text:
    """A text file as it was when its content was hashed.

    Attributes:
        path: absolute.
        size, mtime_ns, ctime_ns, inode: identify an unchanged file without reading it. No
            program can set the ctime, so restoring an old mtime does not hide a change.
        sha256: hash of the content, unpacked if the file is a .gz.
    """

    path: str
    size: int
    mtime_ns: int
    ctime_ns: int
    inode: int
    sha256: str

    @classmethod
    def of(cls, path: Path, known: Iterable[Self] = ()) -> Self:
        """Hashes a file, unless it is one of `known` and unchanged.

        Raises:
            UserError: if it cannot be read.
        """
        with read_errors(path):
            state = path.stat()
            marks = (str(path.resolve()), state.st_size, state.st_mtime_ns, state.st_ctime_ns,
                     state.st_ino)  # fmt: skip
            for text in known:
                if marks == (text.path, text.size, text.mtime_ns, text.ctime_ns, text.inode):
                    return text
            with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
                return cls(*marks, hashlib.file_digest(file, "sha256").hexdigest())


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


def identity(texts: Sequence[Text]) -> str:
    """Returns a hash of the content of files, in order; "" if there are none."""
    if not texts:
        return ""
    return hashlib.sha256("\n".join(text.sha256 for text in texts).encode()).hexdigest()[:16]
