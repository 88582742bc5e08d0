"""Translation of text through a public path, or of ids by the search alone."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import tensorflow as tf
from harness.child import serve
from harness.sentences import evenly_spaced

from tf_transformer.data.corpus import read_lines
from tf_transformer.decoding.batches import by_length, padded
from tf_transformer.decoding.threads import use_threads
from tf_transformer.export.session import SavedModelSession
from tf_transformer.run import Run
from tf_transformer.tasks.translation.translator import Translator, load_translator

Requests = Sequence[Sequence[str]]


def setup(run: str, corpus: str, path: str, exported: str) -> dict:
    """Args:
    run: a run directory, whose best weights translate.
    corpus: a folder written by corpus.py.
    path: "search", "python" or "savedmodel".
    exported: an export of the run, written by exported.py.
    """
    use_threads(int(os.environ["OMP_NUM_THREADS"]))
    opened = Run.open(run)
    translator = load_translator(opened, "best")
    texts = sorted(read_lines(Path(corpus, "source.txt")), key=len)
    if path == "savedmodel":
        prepare, translate = list, _saved_model(Path(exported))
    elif path == "python":
        prepare, translate = list, _python(translator)
    else:
        prepare, translate = _ids(translator), _search(translator)
    ready = {}  # requests prepared before the clock starts

    def work(batch: int, number: int) -> dict:
        """Translates `number` sentences of all lengths, `batch` in a request."""
        if (batch, number) not in ready:
            ready[batch, number] = prepare(requests(texts, batch, number))
        for request in ready[batch, number]:
            translate(request)
        return {"sentences": number}

    return {"work": work}


def requests(texts: Sequence[str], batch: int, number: int) -> Requests:
    """Returns `number` of the texts, evenly spaced, in requests of `batch`."""
    chosen = evenly_spaced(texts, number)
    return [chosen[start : start + batch] for start in range(0, number, batch)]


def _python(translator: Translator) -> Callable[[Sequence[str]], list[str]]:
    return translator.translate


def _saved_model(base: Path) -> Callable[[Sequence[str]], list[str]]:
    session = SavedModelSession(base / "1")

    def translate(request: Sequence[str]) -> list[str]:
        given = {"text": np.array(request, object)}
        outputs = session.run("serving_default", given, ["translation"])
        return [text.decode("utf-8") for text in outputs["translation"]]

    return translate


def _search(translator: Translator) -> Callable[[np.ndarray], list[list[int]]]:
    search = translator.engine.compiled(translator.decoding)
    return lambda ids: search(ids, {}).tokens.numpy().tolist()


def _ids(translator: Translator) -> Callable[[Requests], list[np.ndarray]]:
    """Returns a function from requests to ids, batched like the translator."""
    positions = translator.decoding.batch_tokens // translator.decoding.beam_size

    def prepare(given: Requests) -> list[np.ndarray]:
        batches = []
        for request in given:
            rows = [row.numpy() for row in translator.codec.encode(tf.constant(request))[0]]
            for batch in by_length([len(row) for row in rows], positions):
                batches.append(padded([rows[row] for row in batch]))
        return batches

    return prepare


if __name__ == "__main__":
    serve(setup, "tensorflow", "keras")
