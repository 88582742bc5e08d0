"""`card`: the card of a run, and its cost."""

import pytest
from command_line import assert_refused

from tf_transformer.cli.main import main
from tf_transformer.run import Run


def test_it_prints_the_card_that_training_wrote(trained_run, copied, capsys):
    written = (copied / "card.md").read_text("utf-8")
    written = written.replace(f"--output {trained_run.path}", f"--output {copied}")
    (copied / "card.md").unlink()
    assert main(["card", str(copied)]) == 0
    assert capsys.readouterr().out == written
    assert (copied / "card.md").read_text("utf-8") == written


@pytest.mark.parametrize(("option", "rate"), [("--gpu=P100", 9.5), ("--sustained-tflops=2", 2)])
def test_the_cost_is_also_estimated_from_the_rate_of_the_device(copied, option, rate, capsys):
    assert main(["card", str(copied), option]) == 0
    seconds = sum(record["train_seconds"] for record in Run.open(copied).history())
    assert f"x {rate:g} TFLOP/s: {seconds * rate * 1e12:.2e}\n" in capsys.readouterr().out


def test_mistakes_give_one_line(workplace, capsys):
    assert_refused(capsys, ["card", "begun"], "has no evaluation yet", status=1)
    assert_refused(capsys, ["card", "thesis"], "not a run directory", status=1)
    assert_refused(capsys, ["card", "run", "--gpu", "T4"], "K80", status=2)
    for name, rate in ("gpu", "--gpu=K80"), ("sustained_tflops", "--sustained-tflops=2"):
        text = f"`{name}` is not for an export, but for the run"
        assert_refused(capsys, ["card", "models", rate], text, status=1)
