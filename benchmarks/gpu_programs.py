"""The XLA programs of a training step, compiled for an H100 without one: launches and bounds.

    python benchmarks/gpu_programs.py --model base --shape 512x32

Each program is compiled by the compiler in JAX's CUDA plugin, a close relative of TensorFlow's,
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
from tf_transformer.fast.programs import Program  # noqa: E402
from tf_transformer.fast.recompute import compiled  # noqa: E402
from tf_transformer.models import sums  # noqa: E402
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


def write(path: Path, function, *arguments) -> None:
    text = function.experimental_get_compiler_ir(*arguments)(stage="stablehlo")
    path.with_suffix(".mlir").write_text(text)


def main(options: argparse.Namespace) -> None:
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
    parser.add_argument("--vocab-size", type=int, default=37_000)
    main(parser.parse_args())
