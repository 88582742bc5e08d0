"""The XLA programs of training and decoding, compiled for an H100: launches and bounds.

    python benchmarks/gpu_programs.py --model base --shape 512x32
    python benchmarks/gpu_programs.py --model base --decoding 1x64 32x64

No GPU is needed: the compiler is that in JAX's CUDA plugin, a close relative of TensorFlow's,
without autotuning. Every operand and result of a launch is counted once at 3.35 TB/s. Without
XLA, a launch is an operation of TensorFlow's graph that computes something.
"""

import argparse
import collections
import os
import subprocess
import tempfile
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
import tensorflow as tf  # noqa: E402
from harness.environments import python_of  # noqa: E402

from tf_transformer.config.presets import preset  # noqa: E402
from tf_transformer.decoding.beam_search import beam_search  # noqa: E402
from tf_transformer.fast.programs import Program  # noqa: E402
from tf_transformer.fast.recompute import compiled  # noqa: E402
from tf_transformer.models import sums  # noqa: E402
from tf_transformer.models.cached_decoding import COLUMNS, DecodingStep  # noqa: E402
from tf_transformer.models.losses import LabelSmoothedCrossEntropy  # noqa: E402
from tf_transformer.models.transformer import Transformer  # noqa: E402

COMPILER = Path(__file__).with_name("contenders") / "compile_for_gpu.py"
ROWS = sums.LOGIT_ROWS = sums.LOGIT_ROWS_ON_GPU
# Operations that launch nothing: constants, views, shapes, control flow.
FREE = (
    "Const", "Identity", "IdentityN", "Reshape", "Shape", "NoOp", "Placeholder", "StridedSlice",
    "ReadVariableOp", "ExpandDims", "Squeeze", "Pack", "Unpack", "Bitcast",
    "BroadcastGradientArgs", "InvertPermutation", "PartitionedCall", "StatelessWhile", "Prod",
)  # fmt: skip


def model_of(name: str, num_layers: int, jit_compile: bool, vocab_size: int) -> Transformer:
    sizes = vars(preset(name).model)
    kept = ("d_model", "d_ff", "num_heads", "dropout")
    model = Transformer(
        vocab_size, num_layers=num_layers, dtype="mixed_bfloat16", **{n: sizes[n] for n in kept}
    )
    loss = LabelSmoothedCrossEntropy(0.1, scatter=not jit_compile)
    model.compile("sgd", loss, chunked_loss=True, jit_compile=jit_compile)
    return model


def graph_of(model: Transformer, rows: int, length: int) -> tf.Graph:
    """The graph of the forward and backward pass of a batch."""

    @tf.function(autograph=False)
    def step(source, labels):
        weights = tf.ones_like(labels, tf.float32)
        with compiled(model.programs):
            inputs = {"source": source, "target": source}
            return model._gradients(inputs, labels, weights, tf.constant(1.0))

    ids = tf.TensorSpec([rows, length], tf.int32)
    return step.get_concrete_function(ids, ids).graph


def launches_of_a_layer(options: argparse.Namespace, rows: int, length: int) -> int:
    """The launches without XLA of an encoder layer with a decoder layer."""
    counts = []
    for number in (1, 2):
        model = model_of(options.model, number, False, options.vocab_size)
        kinds = collections.Counter(
            operation.type for operation in graph_of(model, rows, length).get_operations()
        )
        counts.append(sum(n for kind, n in kinds.items() if kind not in FREE))
    return counts[1] - counts[0]


def write_programs(options: argparse.Namespace, rows: int, length: int, folder: Path) -> None:
    """Writes the StableHLO of every program of a model with one layer."""
    model, calls = model_of(options.model, 1, True, options.vocab_size), []
    call = Program.__call__

    def noted(program, *arguments):
        calls.append((program, arguments))
        return call(program, *arguments)

    Program.__call__ = noted
    graph_of(model, rows, length)
    # The order in which the functional model calls its layers.
    names = ("embedding", "", "dropout", "encoder layer", "", "decoder layer")
    for name, (program, arguments) in zip(names, calls, strict=True):
        arguments = tf.nest.map_structure(lambda t: tf.zeros(t.shape, t.dtype), arguments)
        upstream = tf.zeros([rows, length, model.config.d_model], tf.bfloat16)
        if name:
            write(folder / f"{name} forward", program.forward, *arguments)
            write(folder / f"{name} backward", program.backward, *arguments, upstream)
    loss = model._chunked_loss
    kernel = tf.zeros(loss.kernel.shape)
    hidden = tf.zeros([ROWS, model.config.d_model], tf.bfloat16)
    chunk = [hidden, tf.ones([ROWS], tf.int64), tf.ones([ROWS])]
    state = [tf.zeros(v.shape, v.dtype) for v in loss.compiled.state()]
    rest = (tf.constant(1.0), {"kernel": kernel}, state)
    write(folder / f"loss of {ROWS} positions", loss._program, chunk,
          tf.cast(kernel, tf.bfloat16), None, *rest)  # fmt: skip


def write_steps(options: argparse.Namespace, folder: Path) -> None:
    """Writes the StableHLO of steps of decoding with a beam of 4."""
    for dtype in ("float32", "bfloat16"):
        model, beams = decoder_of(options, dtype), 4
        program = model._step_program
        prepared = DecodingStep(*program._layers).prepared
        for shape in options.decoding:
            rows, columns = map(int, shape.split("x"))
            cache = model.initial_cache(tf.ones([rows, COLUMNS], tf.int32))
            past = [
                tuple(
                    tf.zeros([*t.shape[:2], columns * beams, t.shape[3]], t.dtype) for t in pair
                )
                for pair in cache["memory"]
            ]
            ancestry = tf.zeros([rows, beams, columns], tf.int32)
            arguments = tf.ones([rows, beams], tf.int32), tf.constant(3), ancestry
            path = folder / f"{dtype} {rows} sentences, {columns} columns"
            write(path, program._program, prepared, *arguments, cache | {"past": past})


def decoder_of(options: argparse.Namespace, dtype: str) -> Transformer:
    sizes = vars(preset(options.model).model)
    names = ("d_model", "d_ff", "num_heads", "num_layers")
    kept = {name: sizes[name] for name in names}
    return Transformer(options.vocab_size, **kept, dtype=dtype)


def launches_of_search(options: argparse.Namespace, jit_compile: bool) -> int:
    """The launches of a step and of the search around it, or of the latter alone with XLA."""
    model = decoder_of(options, "bfloat16")
    search = tf.function(
        lambda source: beam_search(
            *model.start_search(source, jit_compile),
            source[:, 0],
            beam_size=4,
            few_sizes=jit_compile,
        )
    )
    graph = search.get_concrete_function(tf.TensorSpec([None, None], tf.int32)).graph
    while loops := [o for o in graph.get_operations() if o.type in ("While", "StatelessWhile")]:
        graph = graph._get_function(loops[-1].get_attr("body").name).graph
    return sum(o.type not in (*FREE, "StatelessIf") for o in graph.get_operations())


def write(path: Path, function, *arguments) -> None:
    text = function.experimental_get_compiler_ir(*arguments)(stage="stablehlo")
    path.with_suffix(".mlir").write_text(text)


def main(options: argparse.Namespace) -> None:
    if options.decoding:
        with tempfile.TemporaryDirectory() as folder:
            write_steps(options, Path(folder))
            subprocess.run([python_of("xla"), COMPILER, folder], check=True)
        both, search = (launches_of_search(options, jit) for jit in (False, True))
        print(f"\nwithout XLA a step: {both - search} launches; the search around it: {search}")
        return
    rows, length = map(int, options.shape.split("x"))
    with tempfile.TemporaryDirectory() as folder:
        write_programs(options, rows, length, Path(folder))
        subprocess.run([python_of("xla"), COMPILER, folder], check=True)
    number = launches_of_a_layer(options, rows, length)
    print(f"\nwithout XLA an encoder with a decoder layer, both passes: {number} launches")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="base", help="preset")
    parser.add_argument("--shape", default="512x32", metavar="ROWSxLENGTH")
    text = "sentences, with 4 beams and sources of 32 tokens, and the size of the cache"
    parser.add_argument("--decoding", nargs="+", metavar="SENTENCESxCOLUMNS", help=text)
    parser.add_argument("--vocab-size", type=int, default=37_000)
    main(parser.parse_args())
