"""`train` is the command as a function: it returns what `load` does."""

import io
import logging
import os
import re
import signal
import sys
from pathlib import Path

import keras
import numpy as np
import pytest
from command_line import assert_refused, train_options

import tf_transformer
from tf_transformer.api.train import full_names
from tf_transformer.base.errors import UserError
from tf_transformer.cli.options import config_of
from tf_transformer.config import EOS_ID, UNK_ID
from tf_transformer.decoding.interface import Translation
from tf_transformer.run import Run
from tf_transformer.run.run import evaluation_of
from tf_transformer.translation.translator import Translator
from tools.storm.lab import set_options

SIZE = {
    "vocab_size": 400, "num_layers": 1, "d_model": 16, "d_ff": 16, "num_heads": 2, "steps": 4,
    "batch_tokens": 128, "evaluate_every": 4, "average_last": 1, "beam_size": 1, "dropout": 0.0,
    "max_extra_length": 5,
}  # fmt: skip


@pytest.fixture
def text(trained_run) -> dict[str, str]:
    """Arguments that name the text of the trained run."""
    train, valid = (trained_run.corpus / name for name in ("train", "dev"))
    return {"train": str(train), "valid": [valid], "source": "en", "target": "de"}


def as_settings(fields: dict[str, object]) -> list[str]:
    return [f"{name}={value}" for name, value in full_names(fields).items()]


def test_train_equals_the_command_and_resumes(text, capsys):
    settings = {"data.max_length": 60}
    with pytest.raises(KeyboardInterrupt, match="stopped at step 1 by `stop_after`"):
        tf_transformer.train("tiny", **text, settings=settings, stop_after="1 steps", **SIZE)
    assert "call again to resume" in capsys.readouterr().out
    file = "preset: tiny\ndata.max_length: 60\nmodel.dropout: 0.5\n"  # which SIZE overrides
    Path("run.yaml").write_text(file, "utf-8")
    translator = tf_transformer.train(config="run.yaml", **text, **SIZE)
    printed = capsys.readouterr().out
    assert "resuming from step 1" in printed and "\ndev BLEU " in printed
    assert logging.getLogger("tf_transformer").handlers == []
    assert isinstance(translator, Translator)
    assert isinstance(str(translator.translate("Good morning.")), str)
    run = Run.open("runs/tiny")
    assert (run.path / "card.md").exists()
    words = ["--train", text["train"], "--valid", str(text["valid"][0]), "--source", "en"]
    words += ["--target", "de", "--set", "data.max_length=60"]
    words += set_options(*as_settings(SIZE))
    assert run.config == config_of(train_options(words))


class Falling:
    """A score that falls with each call, from -1 on, and keeps what it was given."""

    __name__ = "falling"

    def __init__(self) -> None:
        self.calls: list[tuple] = []

    def __call__(self, sources, translations, references) -> float:
        self.calls.append((sources, translations, references))
        return -float(len(self.calls))


def test_a_score_of_ones_own_chooses_the_weights_and_ends_training(text, trained_run, capsys):
    """Only with the same name does a begun run go on, and never from the command line."""
    size = SIZE | {"evaluate_every": 2}
    falling = Falling()
    again = tf_transformer.train(**text, **size | {"steps": 20}, patience=2, score=falling)
    printed = capsys.readouterr().out
    assert "no better score in training.patience evaluations" in printed
    assert [*re.findall(r"falling (-\d) .*?(best)?\n", printed)][:2] == [
        ("-1", "best"),
        ("-2", ""),
    ]
    assert [record["valid_score"] for record in again.history] == [-1, -2, -3]
    run = Run.open("runs/tiny")
    assert evaluation_of(run, run.checkpoints.best)["step"] == 2
    sources, translations, references = falling.calls[0]
    assert (sources, references) == (trained_run.lines("dev.en"), trained_run.lines("dev.de"))
    assert all(isinstance(one, Translation) for one in translations)
    assert run.functions == {"score": "falling"} and run.config.training.best_by == "score"
    assert "best falling of 3 evaluations: -1 at step 2" in (run.path / "card.md").read_text()

    more = size | {"steps": 8}
    with pytest.raises(UserError, match="was trained with the score falling .*: no functions"):
        tf_transformer.train(**text, **more)
    with pytest.raises(UserError, match="the score falling .*Received: the score max. To res"):
        tf_transformer.train(**text, **more, score=max)
    names = ["--train", text["train"], "--valid", str(text["valid"][0])]
    names += ["--source", "en", "--target", "de", *set_options(*as_settings(more))]
    refused = "was trained with the score falling .* call tf_transformer.train"
    assert_refused(capsys, ["train", *names], refused, status=1)
    config = ["train", "--config", "runs/tiny/config.json"]
    assert_refused(capsys, config, "in Python. Received: no function", status=1)
    again = tf_transformer.train(**text, **more, score=Falling())
    assert [record["step"] for record in again.history] == [2, 4, 6, 8]


class OnlyUnknown(tf_transformer.Rule):
    """Lets only <unk> come, until the end."""

    def next_token(self, beams):
        allowed = np.isin(np.arange(SIZE["vocab_size"]), [UNK_ID, EOS_ID])
        return tf_transformer.NextToken(allowed=allowed)


def test_rules_act_in_the_search_of_the_dev_text_and_are_recorded(text):
    found = []

    def unknown(sources, translations, references) -> float:
        found.extend(translations)
        return 1.0

    tf_transformer.train(**text, **SIZE, score=unknown, rules=[OnlyUnknown()])
    assert {token for one in found for token in one.tokens} == {UNK_ID, EOS_ID}
    assert Run.open("runs/tiny").functions == {"score": "unknown", "rules": ["OnlyUnknown"]}
    with pytest.raises(UserError, match="score unknown and the rules OnlyUnknown of Python"):
        tf_transformer.train(**text, **SIZE | {"steps": 6}, score=unknown)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"score": max, "best_by": "chrf"},
            "`score` decides .*: leave out `best_by`. .*'chrf'",
        ),
        ({"best_by": "score"}, r"call tf_transformer.train\(score=FUNCTION\) in Python"),
        ({"score": lambda *_: float("nan")}, "`score` must return a finite number. .*: nan"),
        (
            {"score": lambda *_: "good"},
            "must return a finite number. Received: 'good' from <la",
        ),
    ],
)
def test_a_wrong_score_is_refused(text, options, message):
    with pytest.raises(UserError, match=message):
        tf_transformer.train(**text, **SIZE, **options)


class Recorded(keras.callbacks.Callback):
    """Writes down the calls, and stops in a batch."""

    def __init__(self, last_batch: int) -> None:
        super().__init__()
        self.calls, self.batches, self.last_batch = [], 0, last_batch

    def on_train_begin(self, logs=None):
        self.calls.append("begin")

    def on_train_end(self, logs=None):
        self.calls.append("end")

    def on_epoch_begin(self, epoch, logs=None):
        self.calls.append(epoch)

    def on_epoch_end(self, epoch, logs=None):
        self.calls.append((epoch, logs))

    def on_train_batch_end(self, batch, logs=None):
        self.batches += 1
        self.model.stop_training |= self.batches == self.last_batch


def test_callbacks_are_called_as_by_one_fit_and_may_end_it(text, capsys):
    size = SIZE | {"steps": 8, "evaluate_every": 2}
    recorded = Recorded(last_batch=5)
    translator = tf_transformer.train(**text, **size, callbacks=recorded)
    assert "a callback ends the training" in capsys.readouterr().out
    history = [
        {name: it for name, it in record.items() if not isinstance(it, str)}
        for record in translator.history
    ]
    assert [record["step"] for record in history] == [2, 4, 5]
    calls = [call[1] if isinstance(call, tuple) else call for call in recorded.calls]
    logs = [log for log in calls if isinstance(log, dict)]
    assert calls == ["begin", 0, logs[0], 1, logs[1], 2, logs[2], "end"]
    for log, record in zip(logs, history, strict=True):
        keras_names = {name for name in log if name.startswith("val_")}
        assert {name: log[name] for name in log if name not in keras_names} == record
        assert {"val_loss", "val_perplexity", "val_bleu"} <= keras_names
        assert all(log[name] == log[name.replace("val_", "valid_")] for name in keras_names)
    early = keras.callbacks.EarlyStopping("valid_perplexity", mode="max", patience=0)
    again = tf_transformer.train(**text, **size | {"steps": 12}, callbacks=[early])
    assert [record["step"] for record in again.history] == [2, 4, 5, 6, 8]
    with pytest.raises(TypeError, match="`callbacks` must be Keras callbacks. Received: 'x'"):
        tf_transformer.train(**text, **size, callbacks=["x"])


def test_callbacks_of_keras_do_what_they_do_in_fit(text, tmp_path):
    callbacks = [
        keras.callbacks.EarlyStopping(patience=0, mode="max"),  # of val_loss, which falls
        keras.callbacks.CSVLogger(tmp_path / "log.csv"),
        keras.callbacks.ModelCheckpoint(tmp_path / "best.keras", save_best_only=True),
        keras.callbacks.TensorBoard(tmp_path / "board"),
    ]
    size = SIZE | {"steps": 8, "evaluate_every": 2}
    assert len(tf_transformer.train(**text, **size, callbacks=callbacks).history) == 2
    header, *rows = (tmp_path / "log.csv").read_text().splitlines()
    assert "val_bleu" in header and len(rows) == 2 and "NA" not in rows[0]
    assert (tmp_path / "best.keras").exists()
    assert len([*tmp_path.glob("board/train/*")]) == 1


def test_callbacks_that_cannot_work_are_refused_before_anything_is_written(text, tmp_path):
    backup = keras.callbacks.BackupAndRestore(tmp_path / "backup")
    for callback in (backup, keras.callbacks.ReduceLROnPlateau()):
        with pytest.raises(UserError, match=f"cannot have a {type(callback).__name__}: "):
            tf_transformer.train(**text, **SIZE, callbacks=[callback], output=tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"model": "smal"}, "no model 'smal'. Did you mean 'small'"),
        ({"epochs": 3}, "no setting 'epochs'. Did you mean 'steps'"),
        ({"droput": 0.3}, "no setting 'droput'. Did you mean 'dropout'"),
        ({"modle": "tiny"}, "no setting 'modle'. Did you mean 'model'"),
        ({"max_length": 9}, r"settings=\{'model.max_length': 9\}. There are: model.max_length"),
        ({"dropout": 3}, r"`model.dropout` must be in \[0, 1\). Received: 3"),
        ({"settings": {"model.droput": 0}}, "no setting 'model.droput'"),
        ({"train": "my/train"}, "Your own data needs all of `train`, `valid`"),
        (
            {"train": "my/train", "task": "parsing"},
            "`task` 'parsing' needs .* 1.1.0",
        ),
        ({"stop_after": "soon"}, "must be a time such as 2h"),
        ({"task": "chess"}, "`task` must be one of .* Received: 'chess'"),
        ({"config": "no.yaml"}, "no.yaml cannot be read"),
    ],
)
def test_mistakes_are_refused_as_by_the_command(arguments, message, tmp_path):
    with pytest.raises(UserError, match=message):
        tf_transformer.train(**arguments)
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ([], "must be names of files, a tuple .*. Received: \\[\\]"),
        (["my/train", ("a", "b")], "must be names of files, .*. Received: 'my/train'"),
        ([{"en": "a", "de": "b"}], "pairs or a DataFrame of two columns. Received: {"),
        ({"en": ["a"], "de": ["b"]}, "pairs or a DataFrame of two columns. Received: {"),
        ((("a", "b"), ("c", "d")), "must be a list of pairs, or .* Received: \\(\\('a', 'b'"),
        ((["a", "b"], ["c"]), "`train.0.` and `train.1.` must have the same number"),
        (
            [("a", "b"), ("a", float("nan"))],
            "`train.1.` must be a list .* nan at index 1, ",
        ),
        ([("a\nb", "c")], "`train` must have no line breaks. Received: 'a\\\\nb'"),
    ],
)
def test_text_that_is_neither_names_nor_pairs_is_refused(text, message, tmp_path):
    with pytest.raises((TypeError, ValueError), match=message):
        tf_transformer.train(train=text, valid=[("a", "b")])
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    "text", [[("a", "b"), ("c", "d")], (["a", "c"], ["b", "d"]), [("a", "b"), ("c\ud83d", "d")]]
)
def test_two_pairs_are_read_as_they_are_written(text, tmp_path):
    """Except for half a surrogate pair, which no file can hold."""
    with pytest.raises(UserError, match="must be at most"):  # the vocabulary
        tf_transformer.train(train=text, valid=[("a", "b")], output="run", **SIZE)
    (source,) = Path("run/pairs").glob("train-*.source")
    lone = 3 * "\ufffd" * (text[1][0] == "c\ud83d")
    assert source.read_text("utf-8") == f"a\nc{lone}\n"


def test_pairs_need_translation_a_dev_set_and_a_folder_of_their_own(tmp_path):
    for also, received in (({}, "train"),):
        with pytest.raises(UserError, match=f"need both `train` and `valid`.*{received}"):
            tf_transformer.train(train=(["a"], ["b"]), **also)
    Path("mine").mkdir()
    Path("mine/letter.txt").touch()
    with pytest.raises(UserError, match="mine exists but was not created by"):
        tf_transformer.train(train=(["a"], ["b"]), valid=[("a", "b")], output="mine")
    assert [path.name for path in tmp_path.rglob("*")] == ["mine", "letter.txt"]


class Frame:
    """Iterates as a DataFrame of pandas does, which is not installed."""

    def __init__(self, rows: list[tuple[str, str]]) -> None:
        self.rows = rows

    def __iter__(self):
        return iter(["en", "de"])

    def itertuples(self, *, index: bool, name: None):
        assert not index
        return iter(self.rows)


def test_pairs_in_memory_are_kept_in_the_run_and_resumed_with(trained_run, tmp_path):
    train, dev = (
        [*zip(*(trained_run.lines(f"{name}.{side}") for side in ("en", "de")), strict=True)]
        for name in ("train", "dev")
    )
    output = tmp_path / "run"
    options = {"output": output, "stop_after": "1 steps", **SIZE}
    for pairs, dev_pairs in ((train, Frame(dev)), (tuple(zip(*train, strict=True)), iter(dev))):
        with pytest.raises(KeyboardInterrupt):
            tf_transformer.train(train=pairs, valid=dev_pairs, **options)
    run = Run.open(output)
    data = run.config.data
    assert run.changes() == [] and (data.source, data.target) == ("source", "target")
    assert run.checkpoints.state_steps() == [1, 2]
    lines = Path(f"{data.train[0]}.target").read_text("utf-8").splitlines()
    assert lines == [target for _, target in train]
    assert Path(data.train[0]).parent == output / "pairs"
    with pytest.raises(UserError, match="was trained on .*. Received other text"):
        tf_transformer.train(train=train[:-1], valid=dev, **options)
    assert run.text_hashes == Run.open(output).text_hashes


class CtrlC(io.StringIO):
    """A stream that answers the line of an evaluation with Ctrl-C."""

    def write(self, text: str) -> int:
        if text.startswith("step "):
            os.kill(os.getpid(), signal.SIGINT)
        return super().write(text)


def test_ctrl_c_in_an_interactive_session_returns_the_best_weights(text, tmp_path, monkeypatch):
    arguments = {**text, **SIZE, "steps": 1_000_000, "output": tmp_path / "run"}
    stdout = CtrlC()
    monkeypatch.setattr(sys, "stdout", stdout)
    with pytest.raises(KeyboardInterrupt, match="by Ctrl-C"):  # in a script
        tf_transformer.train("tiny", **arguments)
    assert Run.open(tmp_path / "run").checkpoints.state_steps()
    assert stdout.getvalue().endswith("by Ctrl-C; call again to resume\n")
    monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)  # as in a notebook
    assert isinstance(tf_transformer.train("tiny", **arguments), Translator)
    assert stdout.getvalue().endswith("the best weights so far are returned\n")
