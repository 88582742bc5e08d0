"""Opening a run for training, unless its training text has changed."""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path

from tf_transformer.config import Config
from tf_transformer.data.texts import ROLES, Role, Text, identity, text_files
from tf_transformer.errors import UserError
from tf_transformer.run.run import Run

logger = logging.getLogger(__name__)

_LISTED = 4
NAMES = {"train": "training text", "valid": "dev text"}

Texts = Mapping[Role, Sequence[Text]]
Known = Mapping[Role, Sequence[Text] | None]  # None if no text is recorded


def open_for_training(path: Path, config: Config, accept_new_data: bool = False) -> Run:
    """Opens a run with `Run.create_or_resume`, and compares its text with the recorded text.

    Text that has moved is accepted. A change of the dev text is announced, and scores on the
    old one no longer choose the best weights. A run that has recorded no text accepts any.

    Args:
        path: the run directory.
        config: the configuration of this session.
        accept_new_data: whether to continue although the training text has changed.

    Raises:
        UserError: if the training text has changed and is not accepted, a file cannot be read,
            or `Run.create_or_resume` raises it.
    """
    before = Run.open(path) if (path / "config.json").exists() else None
    known = {role: before.checksums.texts(role) if before else None for role in ROLES}
    texts = {
        role: [Text.of(file, known[role] or ()) for file in text_files(config.data, role)]
        for role in ROLES
    }
    changed = [
        role
        for role in ROLES
        if (old := known[role]) is not None and identity(old) != identity(texts[role])
    ]
    begun = before is not None and bool(before.checkpoints.state_steps())
    if begun and "train" in changed and not accept_new_data:
        raise _other_text(path, known["train"] or (), texts["train"])
    run = Run.create_or_resume(path, config, _remarks(known, changed, accept_new_data))
    _take_over(run, known, texts, changed, begun)
    run.checksums.keep_texts(texts)
    files = run.tokenizer_files()
    run.checksums.keep(*(file for file in files if not run.checksums.knows(file)))
    return run


def _remarks(known: Known, changed: Sequence[Role], accept_new_data: bool) -> dict[str, str]:
    """Returns the data settings that may change, each with a remark to announce it."""
    remarks = {}
    for role in ROLES:
        if known[role] is not None:
            remarks[f"data.{role}"] = "other text" if role in changed else "the same text"
        elif accept_new_data:
            remarks[f"data.{role}"] = "the run recorded no text to compare"
    return remarks


def _other_text(path: Path, known: Sequence[Text], texts: Sequence[Text]) -> UserError:
    if [text.path for text in known] == [text.path for text in texts]:
        pairs = zip(known, texts, strict=True)
        changed = next(new.path for old, new in pairs if old.sha256 != new.sha256)
        return UserError(
            f"{changed} has changed since {path} was trained on it. Restore it, give "
            "--accept-new-data to continue with the new text, or give another --output."
        )
    return UserError(
        f"{path} was trained on {_listed(known)}. Received other text: {_listed(texts)}. To "
        "resume, give all options of the first command again; to continue with the new text, "
        "add --accept-new-data; to train a new model, give another --output."
    )


def _listed(texts: Sequence[Text]) -> str:
    if not texts:
        return "the built-in corpus"
    more = f" and {len(texts) - _LISTED} more files" if len(texts) > _LISTED else ""
    return ", ".join(text.path for text in texts[:_LISTED]) + more


def _take_over(
    run: Run, known: Known, texts: Texts, changed: Sequence[Role], begun: bool
) -> None:
    """Announces and records changed text; discards what depends on the old text."""
    if not begun and "train" in changed:
        logger.warning("the training text has changed: a new tokenizer will be trained")
        run.discard_tokenizer()
    for role in changed if begun else ():
        run.record_change(NAMES[role], identity(known[role] or ()), identity(texts[role]))
    if begun and "valid" in changed:
        logger.warning("scores on the old dev text no longer choose the best weights")
