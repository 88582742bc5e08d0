"""`python -m tools.memory_peaks [PRESET ...]`: compares estimated memory with measured peaks.

Each preset trains two steps in a separate process, with the trainer's choice of tokens at once:
on the largest batch of the built-in corpus, like `train.py --model PRESET`, and on the largest
batch that the preset allows, of random tokens. Prints a Markdown table; the exit status is 1 if
an estimate is off by more than 15 %.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

BUILT_IN, LONGEST = "built-in", "longest"
DEFAULT = (
    "tiny", "small", "multi30k", "parsing-small", "classification-small", "parsing-wsj",
    "base", "big",
)  # fmt: skip
TOLERANCE = 0.15
CLASSES = 5  # of the task of a classification preset
HEADER = (
    "| preset | batch | computed at once | estimated | measured | ratio | seconds a step |\n"
    "|---|---|---|---|---|---|---|"
)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.memory_peaks", description=__doc__)
    parser.add_argument("presets", nargs="*", metavar="PRESET", default=DEFAULT)
    parser.add_argument("--batches", nargs="+", choices=(BUILT_IN, LONGEST),
                        default=(BUILT_IN, LONGEST))  # fmt: skip
    parser.add_argument("--max-tokens-per-device", type=int, metavar="N", default=None)
    parser.add_argument("--precision", help="precision instead of the preset's")
    parser.add_argument("--batch-tokens", type=int, metavar="N",
                        help="instead of the preset's")  # fmt: skip
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(train_two_steps(**json.loads(options.child))))
        return 0
    print(HEADER)
    wrong = 0
    for name in options.presets:
        for batch in options.batches:
            settings = {
                "training.max_tokens_per_device": options.max_tokens_per_device,
                "training.precision": options.precision,
                "training.batch_tokens": options.batch_tokens,
            }
            settings = {key: value for key, value in settings.items() if value is not None}
            wrong += not show({"name": name, "batch": batch, "settings": settings})
    return 1 if wrong else 0


def show(job: dict) -> bool:
    """Prints the table row of a preset; returns whether the estimate is within TOLERANCE."""
    command = [sys.executable, "-m", "tools.memory_peaks", "--child", json.dumps(job)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or [f"status {done.returncode}"])[-1]
        print(f"| {job['name']} | {job['batch']} | | | {reason} | | |", flush=True)
        return False
    result = json.loads(done.stdout.splitlines()[-1])
    ratio = result["estimated"] / result["measured"]
    rows, length = result["shape"]
    cells = [
        job["name"],
        f"{rows} x {length} of {result['vocab_size']:,} pieces",
        f"{result['rows']} x {length}",
        *(f"{result[name] / 1e9:.2f} GB" for name in ("estimated", "measured")),
        f"{ratio:.2f}",
        f"{result['seconds']:.1f}",
    ]
    print(f"| {' | '.join(cells)} |", flush=True)
    return abs(ratio - 1) <= TOLERANCE


# --- In the separate process -------------------------------------------------------------


def train_two_steps(name: str, batch: str, settings: dict) -> dict:
    """Trains two steps on the largest batch and reports their memory."""
    import keras

    from tf_transformer.run import Run
    from tf_transformer.tasks.classification.labelled import write_labels
    from tf_transformer.training.interruption import Budget, Interrupted, Stopper
    from tf_transformer.training.trainer import Trainer

    config, shape = workload(name, batch, settings)
    keras.utils.set_random_seed(1)
    with tempfile.TemporaryDirectory() as folder:
        run = Run.create_or_resume(Path(folder) / "run", config)
        if config.task == "classification":
            write_labels(run, [str(number) for number in range(CLASSES)])
        trainer = Trainer(run, RandomTask(run, shape), stopper=Stopper(Budget(steps=2)))
        try:
            trainer.train()
        except Interrupted:
            seconds = trainer.progress.period_seconds / 2
    size, work = trainer.parts.size, trainer.parts.work
    return {
        "shape": shape,
        "vocab_size": config.model.vocab_size,
        "rows": work.estimate(size).rows,
        "estimated": work.needed(size, "RAM"),
        "measured": 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,  # KiB on Linux
        "seconds": seconds,
    }


def workload(name: str, batch: str, settings: dict):
    """Returns the configuration of a preset, and the shape of its largest batch."""
    from tf_transformer.config.presets import preset
    from tf_transformer.doctor.diagnosis import longest_shape
    from tf_transformer.training.parts import Workload

    config = preset(name).replace(settings)
    if batch == LONGEST:
        return config, longest_shape(config)
    config, shapes = of_built_in_corpus(config)
    largest = Workload(config, shapes).estimate(0)
    return config, (largest.rows, largest.length)


def of_built_in_corpus(config):
    """Returns the configuration, with a vocabulary that fits the text, and batch shapes."""
    from tf_transformer.data.tokenizer_training import VocabularyTooLarge
    from tf_transformer.run import Run
    from tf_transformer.tasks.translation.task import TranslationTask

    with tempfile.TemporaryDirectory() as folder:
        try:
            task = TranslationTask(Run(Path(folder), config), lambda text, done: None)
        except VocabularyTooLarge as error:
            return of_built_in_corpus(config.replace({"model.vocab_size": error.largest}))
        return config, task.shapes


class RandomTask:
    """A task whose batches all have the same shape, with random tokens and no padding."""

    steps_per_epoch = validation_steps = 1
    dev_set = ""

    def __init__(self, run, shape: tuple[int, int]) -> None:
        from tf_transformer.tasks.registry import encoder_outputs

        self.run = run
        self.shapes = [shape]
        self.encoder_outputs = encoder_outputs(run)

    def build_model(self):
        from tf_transformer.tasks.classification.task import build_classifier
        from tf_transformer.tasks.models import build_model

        if self.run.config.task == "classification":
            return build_classifier(self.run)
        return build_model(self.run.config)

    def training_data(self, start_step: int, replicas=(0,), num_replicas: int = 1):
        import numpy as np
        import tensorflow as tf

        random = np.random.default_rng(1)
        shape, pieces = self.shapes[0], self.run.config.model.vocab_size
        ids = random.integers(4, pieces, shape, dtype="int32")
        if self.run.config.task == "classification":
            labels = random.integers(1, CLASSES + 1, shape[0], dtype="int32")
            return tf.data.Dataset.from_tensors((ids, labels)).repeat()
        batch = ({"source": ids, "target": ids}, ids)
        return tf.data.Dataset.from_tensors(batch).repeat()

    def validation_data(self, replicas=(0,), num_replicas: int = 1):
        raise NotImplementedError("two steps are not evaluated")

    def evaluator(self, model):
        return None


if __name__ == "__main__":
    sys.exit(main())
