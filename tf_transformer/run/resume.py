"""Opening a run for training, unless its training text has changed."""

import logging
from collections.abc import Sequence
from pathlib import Path

from tf_transformer.config import Config
from tf_transformer.data.texts import ROLES, identity, text_files
from tf_transformer.errors import UserError
from tf_transformer.run.run import Run

logger = logging.getLogger(__name__)


def open_for_training(path: Path, config: Config, accept_new_data: bool = False) -> Run:
    """Opens a run with `Run.create_or_resume`, and compares its text with the recorded hashes.

    Text that has moved is accepted. A change of the dev text is announced, and scores on the
    old one no longer choose the best weights.

    Args:
        path: the run directory.
        config: the configuration of this session.
        accept_new_data: whether to continue although the training text has changed.

    Raises:
        UserError: if the training text has changed and is not accepted, a file cannot be read,
            or `Run.create_or_resume` raises it.
    """
    before = Run.open(path) if (path / "config.json").exists() else None
    known = before.texts if before else {}
    texts = {role: identity(text_files(config.data, role)) for role in ROLES}
    changed = [role for role in ROLES if known.get(role, texts[role]) != texts[role]]
    begun = before is not None and bool(before.checkpoints.state_steps())
    if before and begun and "train" in changed and not accept_new_data:
        raise _other_text(path, before.config.data.train, config.data.train)
    remarks = {
        f"data.{role}": "other text" if role in changed else "the same text" for role in known
    }
    run = Run.create_or_resume(path, config, remarks)
    if not begun and "train" in changed:
        logger.warning("the training text has changed: a new tokenizer will be trained")
        run.discard_tokenizer()
    for role in changed if begun else ():
        run.record_change(ROLES[role], known[role], texts[role])
    if begun and "valid" in changed:
        logger.warning("scores on the old dev text no longer choose the best weights")
    run.record_texts(texts)
    return run


def _other_text(path: Path, before: Sequence[str], now: Sequence[str]) -> UserError:
    if before == now:
        return UserError(
            f"{_listed(now)} has changed since {path} was trained on it. Restore it, give "
            "--accept-new-data to continue with the new text, or give another --output."
        )
    return UserError(
        f"{path} was trained on {_listed(before)}. Received other text: {_listed(now)}. To "
        "resume, give all options of the first command again; to continue with the new text, "
        "add --accept-new-data; to train a new model, give another --output."
    )


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names) or "the built-in corpus"
