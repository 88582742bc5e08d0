"""Fixtures shared by the whole test suite."""

import gc
import io
import logging
import resource
import runpy
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, redirect_stdout
from pathlib import Path

import pytest
import tensorflow as tf
from command_line import ROOT, TrainedRun, run_command, run_here, train_command
from helpers import made_once
from trained import with_slots

from tf_transformer.config import DecodingConfig
from tf_transformer.data import builtin
from tf_transformer.export.publishing import publish
from tf_transformer.export.saved_model import ExportEngine
from tf_transformer.export.signatures import exportable
from tf_transformer.loading.translators import load_translator
from tf_transformer.run import Run
from tf_transformer.translation.translator import Translator
from tools.run_tests import resident
from tools.storm.lab import set_options

# Four logical devices, so that distribution can be tested without a GPU. TensorFlow fixes their
# number as soon as it computes anything.
_CPU = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(_CPU, [tf.config.LogicalDeviceConfiguration()] * 4)


# Tracing makes objects by the hundred thousand, of which few are garbage. With Python's own
# threshold of 700, looking for it took a sixth of the CPU time of tests of models.
gc.set_threshold(100_000, 50, 100)


_SLOW = {"trained_run"}  # fixtures
_SLOW_FOLDERS = {"benchmarks", "claims", "conversion", "export", "notebooks", "training"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks what `make test FAST=1` leaves out."""
    for item in items:
        if _SLOW & {*item.fixturenames} or item.path.parent.name in _SLOW_FOLDERS:
            item.add_marker("slow")


@pytest.fixture(autouse=True, scope="session")
def young_heap() -> None:
    """Exempts what has been imported from garbage collections, as commands do."""
    gc.freeze()


_GROWTH = 100e6  # bytes
_size_after_collection = 0.0


@pytest.fixture(autouse=True)
def bounded_memory() -> Iterator[None]:
    """Frees the models that tests leave in cycles whenever the process has grown."""
    global _size_after_collection
    yield
    if resident() > _size_after_collection + _GROWTH:
        gc.collect()
        _size_after_collection = resident()


@pytest.fixture(autouse=True)
def empty_folder(tmp_path, monkeypatch) -> None:
    """Makes `tmp_path` the current folder: no test sees or changes the checkout by chance."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture(autouse=True)
def logging_as_imported() -> Iterator[None]:
    """Resets the logger after commands that fixtures, before, or the test itself has run."""
    _reset_logger()
    yield
    _reset_logger()


def _reset_logger() -> None:
    logger = logging.getLogger("tf_transformer")
    logger.handlers.clear()
    logger.setLevel(logging.NOTSET)
    logger.propagate = True


@pytest.fixture(scope="module")
def no_nohup() -> Iterator[None]:
    """Lets tests of SIGHUP hold under `nohup` too, here and in child processes."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


# Enough to translate most of its training sentences without an error.
_SETTINGS = (
    "model.vocab_size=600", "model.num_layers=1", "model.d_model=64", "model.d_ff=128",
    "model.dropout=0.05", "training.steps=240", "training.batch_tokens=1024",
    "training.warmup_steps=60", "training.learning_rate_scale=0.5",
    "training.evaluate_every=80", "training.average_last=2",
)  # fmt: skip


@pytest.fixture(scope="session")
def trained_run(tmp_path_factory) -> TrainedRun:
    """A small run that train.py has trained on 300 pairs, with 40 of them as the dev set.

    Shared by all tests: copy it to change it.
    """

    def make(folder: Path) -> TrainedRun:
        pairs = builtin.pairs(300)
        for split, size in (("train", 300), ("dev", 40)):
            sides = zip(*pairs[:size], strict=True)
            for language, lines in zip(builtin.LANGUAGES, sides, strict=True):
                text = "".join(f"{line}\n" for line in lines)
                (folder / f"{split}.{language}").write_text(text, "utf-8")
        options = ["--train", str(folder / "train"), "--valid", str(folder / "dev")]
        options += ["--source", "en", "--target", "de", *set_options(*_SETTINGS)]
        done = run_command(train_command(options, folder / "run"))
        stdout, stderr = done.stdout.decode(), done.stderr.decode()
        assert done.returncode == 0, stderr
        return TrainedRun(folder / "run", folder, options, stdout, stderr)

    return made_once(tmp_path_factory, "trained", make)


@pytest.fixture
def run(trained_run, tmp_path) -> Run:
    """A copy of the trained run, to change."""
    return Run.open(shutil.copytree(trained_run.path, tmp_path / "run"))


@pytest.fixture(scope="session")
def exported(trained_run, tmp_path_factory) -> Path:
    """The trained run as a SavedModel, the first version of "small"."""

    def make(folder: Path) -> Path:
        run, decoding = Run.open(trained_run.path), DecodingConfig()
        python = load_translator(run, "best", decoding=decoding)
        return publish(
            exportable(python), folder / "small", card={"description": "a small model"}
        )

    return made_once(tmp_path_factory, "export", make)


@pytest.fixture(scope="session")
def translator(trained_run) -> Translator:
    """The model of `exported`, in Python."""
    return load_translator(Run.open(trained_run.path), "best", decoding=DecodingConfig())


@pytest.fixture(scope="session")
def texts(trained_run) -> list[str]:
    """Sentences of every length, including blank and foreign ones."""
    lines = sorted(trained_run.lines("train.en"), key=len)[::25]
    return [
        lines[-1],
        "",
        *lines[:6],
        " ".join(lines[:5]),
        "  \t",
        *lines[6:],
        "Füße 🙂 中文",
        ".",
    ]


@pytest.fixture(scope="session")
def text_free(trained_run, tmp_path_factory) -> Path:
    """An export like `exported` but without text, made by the command."""

    def make(folder: Path) -> Path:
        options = ["--checkpoint", "best", "--no-text", "--output", str(folder / "ids")]
        done = run_here(["export", str(trained_run.path), *options])
        assert done.returncode == 0, done.stderr
        return folder / "ids" / "1"

    return made_once(tmp_path_factory, "text-free", make)


@pytest.fixture(scope="session")
def session(exported) -> Iterator[ExportEngine]:
    """The model of `exported`, loaded as in TF Serving."""
    with ExportEngine(exported) as loaded:
        yield loaded


@pytest.fixture(scope="session")
def exported_in_bfloat16(trained_run, tmp_path_factory) -> Path:
    """The mean of the trained run's last two checkpoints, made by `average` and export.py.

    The latter's output is in the file "stdout" beside the model's folder.
    """

    def make(folder: Path) -> Path:
        run = str(shutil.copytree(trained_run.path, folder / "run"))
        assert run_here(["average", run, "--last", "2"]).returncode == 0
        options = ["--checkpoint", "average", "--precision", "bfloat16", "--beam", "2"]
        options += ["--alpha", "0.8", "--output", str(folder / "half")]
        with pytest.MonkeyPatch.context() as patch, redirect_stdout(io.StringIO()) as out:
            patch.setattr(sys, "argv", ["export.py", run, *options])
            program = runpy.run_path(str(ROOT / "export.py"))
            assert program["main"]() == 0  # as a program it would end its process
        (folder / "stdout").write_text(out.getvalue(), "utf-8")
        return folder / "half" / "1"

    return made_once(tmp_path_factory, "bfloat16", make)


@pytest.fixture
def largest_file() -> Callable[[int], AbstractContextManager[None]]:
    """`with largest_file(99)`: no file can grow beyond 99 bytes, as on a full disk."""

    @contextmanager
    def limit(size: int) -> Iterator[None]:
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    return limit


@pytest.fixture(scope="session")
def keeper(tmp_path_factory) -> Translator:
    """A translator with weights at random, whose vocabulary has slots."""
    return with_slots(tmp_path_factory.mktemp("keeper") / "tokenizer.model")
