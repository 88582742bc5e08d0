"""Commands about finished checkpoints: `curves`, `card` and `average`."""

import re
from pathlib import Path

import numpy as np
import pytest
from command_line import assert_refused

from tf_transformer.cli.curves import sparkline
from tf_transformer.cli.main import main
from tf_transformer.reports.facts import best_record
from tf_transformer.run import Run


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1], "▁"),
        ([2, 2, 2], "▁▁▁"),
        ([0, 1, 2, 3, 4, 5, 6, 7], "▁▂▃▄▅▆▇█"),
        ([31.5, -2, 31.5], "█▁█"),
    ],
)
def test_sparkline_heights_span_the_values(values, expected):
    assert sparkline(values) == expected


def test_a_sparkline_of_many_values_samples_them_and_keeps_the_last():
    line = sparkline([*range(1_000), -1_000], width=10)
    assert len(line) == 10
    assert line[-1] == "▁" and line[-2] == "█"


def test_curves_draws_every_run(trained_run, copied, tmp_path, capsys):
    pytest.importorskip("matplotlib")
    runs = [str(trained_run.path), str(copied)]  # with the same name, in two folders
    for suffix, beginning in ((".png", b"\x89PNG\r\n\x1a\n"), (".svg", b"<?xml")):
        picture = tmp_path / "new" / f"curves{suffix}"
        assert main(["curves", *runs, "--output", str(picture)]) == 0
        assert picture.read_bytes().startswith(beginning)
        *lines, last = capsys.readouterr().out.splitlines()
        assert last == str(picture)
        names = ["/".join(Path(run).parts[-2:]) for run in runs]
        assert [line.partition("  dev BLEU  ")[0] for line in lines] == names
        assert all(re.search(r"[▁-█]{3}  last \S+, highest \S+ at step \d+$", x) for x in lines)
    legend = (tmp_path / "new" / "curves.svg").read_text("utf-8")
    assert all(f"{name}, dev" in legend for name in names)


def test_the_highest_is_on_the_latest_dev_set(copied, capsys):
    run = Run.open(copied)
    first, *others = run.history()
    run.write_history([first | {"dev_set": "old", "valid_bleu": 99.5}, *others])
    assert main(["curves", str(copied)]) == 0
    assert f"highest {best_record(run)['valid_bleu']:.4g} at" in capsys.readouterr().out


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


def mean_of(run: Run, steps: list[int]) -> dict[str, np.ndarray]:
    files = [np.load(run.checkpoints.step_path(step)) for step in steps]
    names = [name for name in files[0] if name.startswith("model/")]
    return {name: np.mean([file[name] for file in files], axis=0) for name in names}


@pytest.mark.parametrize(
    ("arguments", "steps"),
    [
        ([], [80, 160, 240]),  # fewer than the five of the default
        (["--last", "2"], [160, 240]),
        (["--best", "1"], None),
    ],
)
def test_the_average_is_that_of_the_chosen_checkpoints(copied, capsys, arguments, steps):
    run = Run.open(copied)
    if steps is None:
        steps = [max(run.history(), key=lambda record: record["valid_bleu"])["step"]]
    assert main(["average", str(copied), *arguments]) == 0
    shown = ", ".join(map(str, steps))
    assert capsys.readouterr().out.endswith(
        f"mean of {len(steps)} checkpoints, steps {shown}\n"
    )
    with np.load(run.checkpoints.average) as average:
        for name, mean in mean_of(run, steps).items():
            np.testing.assert_allclose(average[name], mean, rtol=1e-5, atol=1e-7, err_msg=name)


def test_a_damaged_checkpoint_is_not_named_among_those_averaged(copied, capsys):
    Run.open(copied).checkpoints.step_path(160).write_bytes(b"damaged")
    assert main(["average", str(copied)]) == 0
    assert capsys.readouterr().out.endswith("mean of 2 checkpoints, steps 80, 240\n")


@pytest.mark.parametrize("arguments", [["--last", "4"], ["--best", "9"], ["--last", "-1"]])
def test_a_wrong_number_of_checkpoints_is_refused(workplace, capsys, arguments):
    expected = f"between 1 and 3, .* Received: {arguments[1]}"
    assert_refused(capsys, ["average", "run", *arguments], expected, status=1)


def test_a_run_without_the_weights_of_steps_is_refused(copied, capsys):
    for file in Run.open(copied).checkpoints.path.glob("step-*"):
        file.unlink()
    assert_refused(capsys, ["average", str(copied)], "no checkpoints to average", status=1)
