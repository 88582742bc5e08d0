"""`average`: the mean of the chosen checkpoints."""

import numpy as np
import pytest
from command_line import assert_refused

from tf_transformer.cli.main import main
from tf_transformer.run import Run


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
