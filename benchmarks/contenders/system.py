"""A trained system as users load it: a run, a SavedModel or an export for LiteRT."""

import os
from pathlib import Path

from harness.child import serve

import tf_transformer
from tf_transformer.data.text import read_lines
from tf_transformer.decoding.streams import use_threads
from tf_transformer.export.versions import find_export, is_lite


def setup(path: str, source: str, beam: int, sentences: int) -> dict:
    """Args:
    path: what `tf_transformer.load` takes.
    source: text to translate, of which a round takes the next sentences.
    beam: size of the beam.
    sentences: how many a round translates.
    """
    export = find_export(Path(path))
    if not (export and is_lite(export)):  # LiteRT needs no TensorFlow, nor its memory
        use_threads(int(os.environ["OMP_NUM_THREADS"]))
    translator = tf_transformer.load(path)
    lines, begun = list(read_lines(Path(source))), {}

    def work(batch: int) -> dict:
        """Translates so many sentences at a time; a warm-up and each round take others."""
        first = begun.setdefault(batch, 0)
        begun[batch] += sentences
        texts = [lines[(first + number) % len(lines)] for number in range(sentences)]
        tokens = 0
        for start in range(0, sentences, batch):
            found = translator.translate(texts[start : start + batch], beam_size=beam)
            tokens += sum(each.num_tokens for each in found)
        return {"tokens": tokens, "sentences": sentences}

    return {"work": work}


if __name__ == "__main__":
    serve(setup, "tf-transformer")
