"""`curves`: the dev scores of runs, as text and as a picture."""

import re
from pathlib import Path

import pytest

from tf_transformer.cli.main import main
from tf_transformer.cli.runs import sparkline
from tf_transformer.run import Run
from tf_transformer.run.run import best_record


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
