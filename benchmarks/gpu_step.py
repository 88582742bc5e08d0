"""A training step on a GPU: parity with the CPU, seconds of compilation, profile, resuming.

    python benchmarks/gpu_step.py parity --device gpu --model base
    python benchmarks/gpu_step.py compile --device gpu --model base --shapes 780x32 390x64
    python benchmarks/gpu_step.py profile --device gpu --model base
    python benchmarks/gpu_step.py resume --model tiny
    python benchmarks/gpu_step.py replicas --device gpu --model tiny

`parity` compares one update by XLA programs on the device with one without XLA on the CPU, in
float32 without dropout. `compile` times the first step of each shape, and later ones. `profile`
sums the time of kernels by kind, with and without XLA. Ids are random. `resume` kills a
training of the built-in corpus by XLA programs, resumes it, and compares its weights with those
of an undisturbed one. `replicas` splits the device in two, and compares updates with one's.
"""

import argparse
import collections
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
import keras  # noqa: E402
import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

from tf_transformer.config import Config, ModelConfig, TrainingConfig  # noqa: E402
from tf_transformer.config.presets import preset  # noqa: E402
from tf_transformer.models.losses import LabelSmoothedCrossEntropy  # noqa: E402
from tf_transformer.models.transformer import Transformer, build_model  # noqa: E402
from tf_transformer.training.devices import distribute  # noqa: E402
from tf_transformer.training.trainer import compile_model  # noqa: E402

# Kinds of kernels by what their names contain; the first that fits counts.
KINDS = {
    "products": r"gemm|cublas|cutlass|xmma|nvjet|wgmma|triton_.*dot|dot",
    "copies": r"memcpy|memset|copy|transpose",
    "random numbers": r"random|philox",
    "sums": r"reduce|sum|norm",
    "scatter and gather": r"scatter|gather|segment",
    "Adam": r"adam",
    "other fusions": r"fusion|loop|input_",
}
STEPS = 5


def model_of(options: argparse.Namespace, **changes) -> Transformer:
    """A model with the sizes of a preset, always with the same weights."""
    sizes = vars(preset(options.model).model) | changes
    config = ModelConfig(**sizes | {"vocab_size": options.vocab_size})
    keras.utils.set_random_seed(1)
    return build_model(Config(model=config), options.precision)


def batch(options: argparse.Namespace, rows: int, length: int) -> tuple:
    """A batch of random ids; the last row ends in padding."""
    draw = np.random.default_rng(rows).integers
    source, labels = draw(4, options.vocab_size, (2, rows, length), dtype="int32")
    source[-1, length // 2 :] = labels[-1, length // 3 :] = 0
    target = np.where(labels, np.roll(labels, 1, axis=1), 0)
    return {"source": source, "target": target}, labels


def batches(options: argparse.Namespace, shape: str, steps: int) -> tf.data.Dataset:
    """Several times one batch, with unknown sizes, as in training."""
    spec = tf.TensorSpec([None, None], tf.int32)
    signature = {"source": spec, "target": spec}, spec
    one = batch(options, *map(int, shape.split("x")))
    data = tf.data.Dataset.from_generator(lambda: [one] * steps, output_signature=signature)
    return data.apply(tf.data.experimental.assert_cardinality(steps))


def parity(options: argparse.Namespace) -> None:
    """Prints how far the updates of all weights are apart."""
    options.precision = "float32"
    updates = []
    for device, jit_compile in (("CPU", False), (options.device.upper(), True)):
        with tf.device(device):
            model = model_of(options, dropout=0.0)
            before = model.get_weights()
            loss = LabelSmoothedCrossEntropy(0.1, scatter=not jit_compile)
            model.compile("sgd", loss, chunked_loss=True, jit_compile=jit_compile)
            model.optimizer.learning_rate = 1.0
            value = model.train_on_batch(*batch(options, 8, 16))
            pairs = zip(before, model.get_weights(), strict=True)
            updates.append((float(value), [a - b for a, b in pairs]))
    (expected, theirs), (value, ours) = updates
    largest = max(np.linalg.norm(each) for each in theirs)
    errors = [
        np.linalg.norm(a - b) / max(np.linalg.norm(b), 1e-5 * largest)
        for a, b in zip(ours, theirs, strict=True)
    ]
    print(f"loss {value:.6f}, on the CPU without XLA {expected:.6f}; relative error of")
    print(f"{len(errors)} updates: median {np.median(errors):.1e}, largest {max(errors):.1e}")


def compiled(options: argparse.Namespace, jit_compile: bool) -> Transformer:
    model = model_of(options)
    training = TrainingConfig(precision=options.precision, jit_compile=jit_compile)
    compile_model(model, Config(model=model.config, training=training))
    return model


class Clock(keras.callbacks.Callback):
    """Seconds of each step."""

    def on_epoch_begin(self, epoch, logs=None):
        self.seconds, self.last = [], time.perf_counter()

    def on_train_batch_end(self, batch, logs=None):
        float(logs["loss"])  # waits for the device
        now = time.perf_counter()
        self.seconds.append(now - self.last)
        self.last = now


def compilation(options: argparse.Namespace) -> None:
    """Prints the seconds of the first step of each shape, and of the later ones."""
    model, clock = compiled(options, True), Clock()
    for shape in options.shapes:
        data, start = batches(options, shape, STEPS), sum(os.times()[:2])
        model.fit(data, shuffle=False, verbose=0, callbacks=[clock])
        first, later = clock.seconds[0], np.median(clock.seconds[1:])
        cpu = sum(os.times()[:2]) - start
        times = f"first step {first:.1f} s, later ones {later:.3f} s"
        print(f"{shape}: {times}; all {STEPS} took {cpu:.1f} s of CPU time", flush=True)


def profile(options: argparse.Namespace) -> None:
    """Prints the milliseconds and launches of a step, by kind of kernel."""
    for jit_compile in (False, True):
        model = compiled(options, jit_compile)
        model.fit(batches(options, options.shapes[0], 2), shuffle=False, verbose=0)
        with tempfile.TemporaryDirectory() as folder:
            with tf.profiler.experimental.Profile(folder):
                data = batches(options, options.shapes[0], STEPS)
                model.fit(data, shuffle=False, verbose=0)
            kinds = kinds_in(next(Path(folder).rglob("*.xplane.pb")), options.device)
        title = "XLA programs by layer" if jit_compile else "without XLA"
        print(f"\n| {title} | ms a step | launches |\n|---|---:|---:|")
        for kind, (seconds, launches) in kinds.items():
            print(f"| {kind} | {seconds / STEPS * 1e3:.1f} | {launches / STEPS:,.0f} |")


def kinds_in(path: Path, device: str) -> dict[str, tuple[float, int]]:
    """Seconds and number of a profile's events by kind, the longest first; "all" last."""
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    space = xplane_pb2.XSpace.FromString(path.read_bytes())
    found = collections.defaultdict(lambda: [0.0, 0])
    for plane in space.planes:
        if ("GPU" if device == "gpu" else "CPU") not in plane.name:
            continue
        for line in plane.lines:
            if device == "gpu" and not line.name.startswith("Stream"):
                continue
            for event in line.events:
                name = plane.event_metadata[event.metadata_id].name.lower()
                fits = (kind for kind, words in KINDS.items() if re.search(words, name))
                for kind in (next(fits, "others"), "all"):
                    found[kind][0] += event.duration_ps / 1e12
                    found[kind][1] += 1
    return dict(sorted(found.items(), key=lambda item: (item[0] == "all", -item[1][0])))


TRAINING = (
    "training.jit_compile=true", "decoding.jit_compile=true", "training.steps=40",
    "training.evaluate_every=20",
    "training.batch_tokens=512", "training.save_minutes=1e-6", "data.max_length=16",
    "decoding.beam_size=1", "decoding.max_extra_length=1",
)  # fmt: skip


def resume(options: argparse.Namespace) -> None:
    """Prints the seconds of trainings, and how many weights and moments have the same bits."""
    with tempfile.TemporaryDirectory() as folder:
        whole, killed = Path(folder, "whole"), Path(folder, "killed")
        train(options, whole)
        train(options, killed, kill=True)
        train(options, killed)
        found = [np.load(run / "checkpoints" / "state-00000040.npz") for run in (whole, killed)]
        names = [n for n in found[0].files if n.startswith(("model/", "optimizer/", "seed/"))]
        equal = [found[0][n].tobytes() == found[1][n].tobytes() for n in names]
    print(f"{sum(equal)} of {len(names)} arrays of the killed run have the whole one's bits")
    if not all(equal):
        raise SystemExit(1)


def train(options: argparse.Namespace, run: Path, *, kill: bool = False) -> None:
    """Trains, until the second state is written if the process is to be killed."""
    words = [word for each in TRAINING for word in ("--set", each)]
    command = [sys.executable, "-m", "tf_transformer.cli.main", "train", "--model"]
    command += [options.model, "--output", str(run), *words]
    started = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        while kill and process.poll() is None:
            if len(list(run.glob("checkpoints/state-*.npz"))) > 1:
                process.kill()
            time.sleep(0.01)
        lines = process.communicate()[0].splitlines()
    shown = [line for line in lines if line.startswith(("XLA", "resuming", "error"))]
    seconds = time.perf_counter() - started
    print(f"status {process.returncode} after {seconds:.0f} s: {'; '.join(shown)}", flush=True)


def replicas(options: argparse.Namespace) -> None:
    """Prints how far the weights after three updates are from those of one device."""
    on_gpu, options.precision = options.device == "gpu", "float32"
    physical = tf.config.list_physical_devices(options.device.upper())[0]
    limit = 8_192 if on_gpu else None  # MB
    logical = [tf.config.LogicalDeviceConfiguration(memory_limit=limit)] * 2
    tf.config.set_logical_device_configuration(physical, logical)
    kinds = [tf.distribute.ReductionToOneDevice()]
    if on_gpu:
        kinds += [tf.distribute.HierarchicalCopyAllReduce(), tf.distribute.NcclAllReduce()]
    expected = weights_after(options, tf.distribute.get_strategy())
    names = [f"{options.device.upper()}:{index}" for index in range(2)]
    for kind in kinds:
        found = weights_after(options, tf.distribute.MirroredStrategy(names, kind))
        apart = max(
            np.abs(a - b).max() / np.abs(b).max() for a, b in zip(found, expected, strict=True)
        )
        print(f"{type(kind).__name__}: {apart:.1e} of a tensor's largest value", flush=True)


def weights_after(options: argparse.Namespace, strategy: tf.distribute.Strategy) -> list:
    """The weights after three updates by XLA programs, without dropout."""
    inputs, labels = batch(options, 8, 16)

    def share(replicas, number: int) -> tf.data.Dataset:
        parts = [
            tf.nest.map_structure(lambda each, r=r: each[r::number], (inputs, labels))
            for r in replicas
        ]
        spec = tf.TensorSpec([None, None], tf.int32)
        signature = tf.nest.map_structure(lambda _: spec, parts[0])
        return tf.data.Dataset.from_generator(
            lambda: parts, output_signature=signature
        ).repeat()

    with strategy.scope():
        model = model_of(options, dropout=0.0)
        loss = LabelSmoothedCrossEntropy(0.1, scatter=False)
        model.compile("sgd", loss, chunked_loss=True, jit_compile=True)
    model.fit(distribute(strategy, share), steps_per_epoch=3, shuffle=False, verbose=0)
    return model.get_weights()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    tasks = {"parity": parity, "compile": compilation, "profile": profile, "resume": resume}
    tasks |= {"replicas": replicas}
    parser.add_argument("task", choices=tasks)
    parser.add_argument("--device", choices=("gpu", "cpu"), default="gpu")
    parser.add_argument("--model", default="base", help="preset")
    parser.add_argument("--precision", default="mixed_bfloat16")
    parser.add_argument("--vocab-size", type=int, default=37_000)
    shapes = ["780x32", "390x64", "200x124"]
    parser.add_argument("--shapes", nargs="+", default=shapes, metavar="ROWSxLENGTH")
    chosen = parser.parse_args()
    tasks[chosen.task](chosen)
