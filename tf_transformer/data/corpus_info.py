"""Metadata of an encoded corpus: checksums of its files, and a fingerprint of its origin."""

import hashlib
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from tf_transformer.data.texts import Text, identity
from tf_transformer.files import parse_json, sha256

INFO_FILE = "corpus.json"


def write_info(directory: Path, info: dict[str, Any]) -> None:
    """Writes INFO_FILE, the last file: its presence marks a complete corpus."""
    files = sorted(directory.iterdir())
    info = info | {"checksums": {file.name: sha256(file) for file in files}}
    info["checksum"] = _checksum(info)
    (directory / INFO_FILE).write_text(json.dumps(info, indent=2), encoding="utf-8")


def read_info(directory: Path) -> dict[str, Any]:
    """Reads INFO_FILE and verifies the checksums of all files of the corpus.

    A corpus written by an earlier version has no checksums and is not verified.

    Raises:
        OSError, ValueError, KeyError, TypeError, AttributeError: if a file is missing or
            damaged.
    """
    info = parse_json((directory / INFO_FILE).read_text("utf-8"))
    if not ({"checksums", "checksum"} & info.keys()):
        return info
    if info["checksum"] != _checksum(info):
        raise ValueError(f"{INFO_FILE} is damaged")
    for name, recorded in info["checksums"].items():
        if sha256(directory / name) != recorded:
            raise ValueError(f"{name} is damaged")
    return info


def _checksum(info: dict[str, Any]) -> str:
    """Hashes the content of INFO_FILE except this checksum itself."""
    content = {name: value for name, value in info.items() if name != "checksum"}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def fingerprint(texts: Sequence[Text], models: Iterable[bytes], settings: str) -> str:
    """Returns a hash of the text, the tokenizer's models and the filters."""
    digest = hashlib.sha256(b"".join(models))
    digest.update(f"{identity(texts)} {settings}".encode())
    return digest.hexdigest()


def old_fingerprint(files: Sequence[Path], models: Iterable[bytes], settings: str) -> str:
    """Returns the fingerprint that earlier versions made from path, size and time of files."""
    digest = hashlib.sha256(b"".join(models))
    for file in files:
        state = file.stat()
        digest.update(f"{file.resolve()} {state.st_size} {state.st_mtime_ns}\n".encode())
    digest.update(settings.encode())
    return digest.hexdigest()
