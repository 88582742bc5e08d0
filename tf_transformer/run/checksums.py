"""Checksums of a run's files and text, stored in its checksums.json."""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tf_transformer.data.texts import Role, Text
from tf_transformer.errors import UserError
from tf_transformer.files import parse_json, sha256, write_text


class Checksums:
    """Recorded checksums of a run's files; runs of earlier versions lack them.

    Args:
        path: the JSON file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._parsed: tuple[tuple[int, int, int], dict[str, dict[str, Any]]] | None = None

    def require(self, file: Path) -> None:
        """Raises UserError if `file` exists and differs from its record."""
        recorded = self._read()["files"].get(file.name)
        if recorded and file.exists() and sha256(file) != recorded:
            raise UserError(
                f"{file} is damaged: its SHA-256 differs from that in {self.path.name}. "
                "Restore it from a copy of the run, or delete it and rerun the command that "
                "created it."
            )

    def knows(self, file: Path) -> bool:
        """Returns whether a checksum of `file` is recorded."""
        return file.name in self._read()["files"]

    def keep(self, *files: Path, new: bool = True) -> None:
        """Records the checksums of existing files.

        Args:
            *files: files in the run directory.
            new: whether they may differ from their recorded checksums.

        Raises:
            UserError: if a file differs and may not.
        """
        record = self._read()
        digests = {file: sha256(file) for file in files if file.exists()}
        if not new:
            for file, digest in digests.items():
                self.refuse_other(file, digest)
        kept = record["files"] | {file.name: digest for file, digest in digests.items()}
        if kept != record["files"]:
            self._write(record | {"files": kept})

    def refuse_other(self, file: Path, digest: str) -> None:
        """Raises UserError if `file` is recorded with a checksum other than `digest`."""
        if self._read()["files"].get(file.name, digest) != digest:
            raise UserError(
                f"{file} was gone, and its replacement differs from the one that the "
                "checkpoints were trained with. Restore it from a copy."
            )

    def forget(self, *files: Path) -> None:
        """Drops the records of files that will be created anew."""
        record = self._read()
        names = {file.name for file in files}
        kept = {name: digest for name, digest in record["files"].items() if name not in names}
        if kept != record["files"]:
            self._write(record | {"files": kept})

    def texts(self, role: Role) -> list[Text] | None:
        """Returns the recorded text files; None without a record."""
        return self._read()["texts"].get(role)

    def keep_texts(self, texts: Mapping[Role, Sequence[Text]]) -> None:
        """Records text files, replacing those recorded before."""
        record = self._read()
        if record["texts"] != (kept := record["texts"] | dict(texts)):
            self._write(record | {"texts": kept})

    def _read(self) -> dict[str, dict[str, Any]]:
        """Returns the record; parses it again only if this or another process replaced it."""
        try:
            state = self.path.stat()
            version = (state.st_ino, state.st_mtime_ns, state.st_size)
            if self._parsed is None or self._parsed[0] != version:
                self._parsed = version, self._parse()
            return self._parsed[1]
        except FileNotFoundError:
            return {"files": {}, "texts": {}}
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UserError(
                f"{self.path} is damaged: {error}. Restore it, or delete it: the next training "
                "session then records the files as they are."
            ) from None

    def _parse(self) -> dict[str, dict[str, Any]]:
        record = parse_json(self.path.read_text(encoding="utf-8"))
        texts = {
            role: [Text(**text) for text in texts]
            for role, texts in dict(record["texts"]).items()
        }
        return {"files": dict(record["files"]), "texts": texts}

    def _write(self, record: dict[str, dict[str, Any]]) -> None:
        texts = {
            role: [dataclasses.asdict(text) for text in texts]
            for role, texts in record["texts"].items()
        }
        write_text(self.path, json.dumps(record | {"texts": texts}, indent=2) + "\n")
