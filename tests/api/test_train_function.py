"""`train` is the command as a function: it returns what `load` does."""

import io
import logging
import os
import signal
import sys
from pathlib import Path

import pytest
from command_line import train_options

import tf_transformer
from tf_transformer.api.train import full_names
from tf_transformer.cli.training_options import config_of
from tf_transformer.errors import UserError
from tf_transformer.run import Run
from tf_transformer.tasks.translation.translator import Translator

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


def test_train_equals_the_command_and_resumes(text, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    settings = {"data.max_length": 60}
    with pytest.raises(KeyboardInterrupt, match="stopped at step 1 by --stop-after 1 steps"):
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
    for name, value in full_names(SIZE).items():
        words += ["--set", f"{name}={value}"]
    assert run.config == config_of(train_options(words))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"model": "smal"}, "no model 'smal'. Did you mean 'small'"),
        ({"droput": 0.3}, "no setting 'droput'. Did you mean 'dropout'"),
        ({"max_length": 9}, r"settings=\{'model.max_length': 9\}. There are: model.max_length"),
        ({"dropout": 3}, r"`model.dropout` must be in \[0, 1\). Received: 3"),
        ({"settings": {"model.droput": 0}}, "no setting 'model.droput'"),
        ({"train": "my/train"}, "Your own data needs all of --train PREFIX --valid PREFIX"),
        ({"train": "my/train", "task": "parsing"}, "Parsing needs --train FILE"),
        ({"stop_after": "soon"}, "must be a time such as 2h"),
        ({"task": "chess"}, "There is no task 'chess'"),
        ({"config": "no.yaml"}, "no.yaml cannot be read"),
    ],
)
def test_mistakes_are_refused_as_by_the_command(arguments, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=message):
        tf_transformer.train(**arguments)
    assert not any(tmp_path.iterdir())


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
