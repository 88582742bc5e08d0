"""The description of an encoded corpus on disk, with checksums of its files."""

import hashlib
import json
from pathlib import Path
from typing import Any

from tf_transformer.files import parse_json, sha256

INFO_FILE = "corpus.json"


def write_info(directory: Path, info: dict[str, Any]) -> None:
    """Writes INFO_FILE, which tells a whole corpus from one that was begun: the last file."""
    files = sorted(directory.iterdir())
    info = info | {"checksums": {file.name: sha256(file) for file in files}}
    info["checksum"] = _checksum(info)
    (directory / INFO_FILE).write_text(json.dumps(info, indent=2), encoding="utf-8")


def read_info(directory: Path) -> dict[str, Any]:
    """Reads INFO_FILE and, once, all files of the corpus for their checksums.

    A corpus of an earlier version has no checksums and is taken as it is.

    Raises:
        OSError, ValueError, KeyError, TypeError, AttributeError: if a file is missing or is not
            as it was written.
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
    """Hashes all that INFO_FILE says but this checksum itself."""
    content = {name: value for name, value in info.items() if name != "checksum"}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
