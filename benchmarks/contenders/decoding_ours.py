"""Beam search of tf_transformer, as in `Translator.translate`."""

import functools
import os
from collections.abc import Callable
from types import SimpleNamespace

import numpy as np
import tensorflow as tf
from harness.child import serve
from harness.sentences import EOS, Rows, Work, up_to_eos, with_eos

from tf_transformer.config import DecodingConfig
from tf_transformer.decoding.engine import GraphEngine, SearchPlan
from tf_transformer.decoding.streams import in_batches
from tf_transformer.fast.int8 import to_int8
from tf_transformer.litert.engine import LiteEngine
from tf_transformer.litert.file import lite_file
from tf_transformer.litert.interpreter import InterpreterPool
from tf_transformer.models.transformer import Transformer
from tf_transformer.run.checkpoints import load_weights


def setup(
    work: str, precision: str, lookahead: int = 0, streams: int = 1, jit_compile: bool = False
) -> dict:
    """Args:
    work: the folder of the work.
    precision: "float32", "bfloat16" or "int8"; or "litert" or "litert-int8", in LiteRT.
    lookahead: lookahead of the search, unless its lengths are forced.
    streams: parts of a batch computed at the same time.
    jit_compile: whether XLA compiles the steps.
    """
    given = Work(work)
    if streams > 1:
        tf.config.threading.set_inter_op_parallelism_threads(streams)
    in_litert = {"litert": "float32", "litert-int8": "int8"}.get(precision)
    dtype = "bfloat16" if precision == "bfloat16" else "float32"
    model = Transformer(**given.model, dtype=dtype, name="transformer")
    load_weights(given.folder / "weights.npz", model)
    if precision == "int8":
        to_int8(model)
    lite = None
    if in_litert:
        lite = InterpreterPool(lite_file(model, in_litert), int(os.environ["OMP_NUM_THREADS"]))

    @functools.cache
    def searcher(beam: int, forced: int, alpha: float):
        """Returns `search(rows)`, which returns each row's best hypothesis, ids with EOS."""
        limits = {"min_length": forced, "max_length": forced} if forced else {}
        limits["lookahead"] = 0 if forced else lookahead
        limits["jit_compile"] = jit_compile
        decoding = DecodingConfig(beam_size=beam, alpha=alpha, **limits)
        vocabulary = SimpleNamespace(  # enough to search over ids
            vocab_size=model.vocab_size, model_bytes=b"", slots=lambda side="source": ()
        )
        engine = GraphEngine(model, vocabulary)
        if lite:
            engine = LiteEngine.beside(engine, lite)
        find = engine.search_for(SearchPlan(decoding))

        def compute(rows):
            ids = np.array(with_eos(rows), "int32")
            output = find(ids, {})
            best = np.asarray(output.tokens)[:, 0].tolist()
            return [[*up_to_eos(row), EOS] for row in best]

        return lambda rows: _in_parts(compute, rows, streams)

    def measured(batch: int, beam: int, forced: int, batches: int) -> dict:
        return given.decode(searcher(beam, forced, 0.6), batch, batches)

    def check(batch: int, beam: int, forced: int) -> dict:
        """Returns the output ids of one batch without EOS; only forced ones have a penalty."""
        (rows,) = given.batches(batch, 1)
        outputs = searcher(beam, forced, 0.6 if forced else 0.0)(rows)
        return {"hypotheses": [[row[:-1]] for row in outputs]}

    return {"work": measured, "check": check}


def _in_parts(compute: Callable[[Rows], Rows], rows: Rows, streams: int) -> Rows:
    """Applies `compute` to the rows in parts, several at the same time."""
    outputs, lengths = {}, [len(row) + 1 for row in rows]

    def compute_part(part: list[int]) -> Rows:
        return compute([rows[index] for index in part])

    positions = streams * len(rows) * max(lengths)  # no limit
    for part, results in in_batches(lengths, positions, compute_part, streams=streams):
        outputs |= dict(zip(part, results, strict=True))
    return [outputs[index] for index in range(len(rows))]


if __name__ == "__main__":
    serve(setup, "tensorflow", "keras")
