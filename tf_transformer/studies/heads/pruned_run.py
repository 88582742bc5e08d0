"""A run whose heads are pruned, for every command that takes a run."""

import json
from collections.abc import Sequence
from pathlib import Path

from tf_transformer.data.tokenizer import Tokenizer
from tf_transformer.files import replacing_folder, write_text
from tf_transformer.models.transformer import Transformer
from tf_transformer.run import Run
from tf_transformer.run.checkpoints import save_weights
from tf_transformer.studies.heads.masks import Head, HeadMasks

PRUNED_FILE = "pruned_heads.json"


def write_pruned_run(
    run: Run, model: Transformer, masks: HeadMasks, pruned: Sequence[Head], path: Path
) -> Run:
    """Writes a run with the model's weights, those of pruned heads' outputs zero.

    The model keeps its shape: a pruned head is computed, and adds nothing. Which they are is
    in pruned_heads.json.

    Args:
        run: where configuration and tokenizer come from.
        model: with the weights to write.
        masks: of that model.
        pruned: the heads without which it is written.
        path: the folder to write; it must be new.

    Raises:
        UserError: if it has files or cannot be written; nothing is written then.
    """
    with replacing_folder(path, replace=False) as temporary:
        written = Run.create_or_resume(temporary, run.config)
        if run.lengths.exists():
            written.write_trained_lengths(*run.trained_lengths())
        Tokenizer(run.require_tokenizer()).copy(written.tokenizer)
        written.checksums.keep(*written.tokenizer_files())
        masks.apply(pruned)
        save_weights(written.checkpoints.best, model)
        masks.apply([])
        names = [str(head) for head in pruned]
        write_text(temporary / PRUNED_FILE, json.dumps(names, indent=2) + "\n")
    return Run.open(path)
