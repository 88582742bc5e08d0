"""The folder of an ablation: what its rows have in common, and whether it is one at all."""

from pathlib import Path

from tf_transformer.config import Config
from tf_transformer.errors import UserError
from tf_transformer.files import write_text
from tf_transformer.run import Run, holds_other_files

SETTINGS_FILE = "base.json"
# May change between two sessions: results do not depend on them.
_CHANGEABLE = ("training.max_tokens_per_device", "training.save_minutes")


def check_folder(output: Path, base: Config) -> None:
    """Refuses a folder that is somebody else's, or has rows of other settings; writes nothing.

    Raises:
        UserError: if it is one of these, or its settings cannot be read.
    """
    if not (output / SETTINGS_FILE).exists():
        if holds_other_files(output):
            raise UserError(
                f"{output} exists and is not of an ablate. Give --output a new folder."
            )
        return
    before, now = read_settings(output).flat(), base.flat()
    changes = [
        f"{name} was {before[name]!r}, now {now[name]!r}"
        for name in now
        if before.get(name) != now[name] and name not in _CHANGEABLE
    ]
    if changes and _has_rows(output):
        raise UserError(
            f"{output} holds rows of other settings: {'; '.join(changes)}. Give the same "
            "settings to go on, or another --output."
        )


def begin_folder(output: Path, base: Config) -> Run:
    """The run that makes the tokenizer and the tokenised corpus of all rows.

    Without a row, a tokenizer that is here may be of a mistake since corrected: it is deleted.
    It is ablate's own, for `check_folder` has seen the settings, which are written first.
    """
    run = Run(output, base)
    if not _has_rows(output):
        run.discard_tokenizer()
    write_text(output / SETTINGS_FILE, base.to_json())
    return run


def read_settings(output: Path) -> Config:
    """The configuration of base as it was asked for; all rows of a folder have it in common."""
    try:
        return Config.from_json((output / SETTINGS_FILE).read_text("utf-8"))
    except OSError:
        raise UserError(
            f"{output} has no results yet. Expected the --output of an ablate before."
        ) from None


def _has_rows(output: Path) -> bool:
    return any(output.glob("*-seed*"))
