"""Names for what an encoded corpus was made from, to tell whether it is still the right one."""

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path

from tf_transformer.data.texts import Text, identity


def fingerprint(texts: Sequence[Text], models: Iterable[bytes], settings: str) -> str:
    """Names the content of the text, the tokenizer's models and the filters."""
    digest = hashlib.sha256(b"".join(models))
    digest.update(f"{identity(texts)} {settings}".encode())
    return digest.hexdigest()


def old_fingerprint(files: Sequence[Path], models: Iterable[bytes], settings: str) -> str:
    """The same as runs without checksums have it, by path, size and time of the text files."""
    digest = hashlib.sha256(b"".join(models))
    for file in files:
        state = file.stat()
        digest.update(f"{file.resolve()} {state.st_size} {state.st_mtime_ns}\n".encode())
    digest.update(settings.encode())
    return digest.hexdigest()
