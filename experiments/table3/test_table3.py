"""Rows of Table 3: their files and scales, their training, the table and chart of results."""

import re
import shutil
from pathlib import Path

import pytest

import tf_transformer
from experiments.common import run
from experiments.table3.__main__ import given_settings, main
from experiments.table3.report import (
    RowResult,
    draw_differences,
    finished_rows,
    parameter_count,
    parameters_table,
    result,
    results_table,
)
from experiments.table3.rows import (
    BASE,
    PRINTED,
    change,
    plan_rows,
    select_rows,
    settings_of,
)
from tf_transformer import Run, UserError
from tf_transformer.evaluation import Spread

# --- The files -----------------------------------------------------------------------------

OF_BASE = {
    "N": 6, "d_model": 512, "d_ff": 2048, "h": 8, "d_k": 64, "d_v": 64, "P_drop": 0.1,
    "eps_ls": 0.1, "steps": 100_000, "positions": "sinusoidal",
}  # fmt: skip
# Each row as printed, blanks being as in base; the millions of parameters in its last column,
# which no vocabulary size reproduces in every row; and the exact number with the paper's 37,000
# subwords, one matrix for embeddings and projection, and no biases in attention.
COLUMNS = {
    "base": ({}, 65, 63_045_632),
    "A-h1": ({"h": 1, "d_k": 512, "d_v": 512}, None, 63_045_632),
    "A-h4": ({"h": 4, "d_k": 128, "d_v": 128}, None, None),
    "A-h16": ({"h": 16, "d_k": 32, "d_v": 32}, None, None),
    "A-h32": ({"h": 32, "d_k": 16, "d_v": 16}, None, None),
    "B-dk16": ({"d_k": 16}, 58, 55_967_744),
    "B-dk32": ({"d_k": 32}, 60, 58_327_040),
    "C-N2": ({"N": 2}, 36, 33_644_544),
    "C-N4": ({"N": 4}, 50, 48_345_088),
    "C-N8": ({"N": 8}, 80, 77_746_176),
    "C-d256": ({"d_model": 256, "d_k": 32, "d_v": 32}, 28, 26_816_512),
    "C-d1024": ({"d_model": 1024, "d_k": 128, "d_v": 128}, 168, 163_815_424),
    "C-ff1024": ({"d_ff": 1024}, 53, 50_450_432),
    "C-ff4096": ({"d_ff": 4096}, 90, 88_236_032),
    "D-drop0.0": ({"P_drop": 0.0}, None, None),
    "D-drop0.2": ({"P_drop": 0.2}, None, None),
    "D-ls0.0": ({"eps_ls": 0.0}, None, None),
    "D-ls0.2": ({"eps_ls": 0.2}, None, None),
    "E-learned": ({"positions": "learned"}, None, None),
    "big": (
        {"d_model": 1024, "d_ff": 4096, "h": 16, "P_drop": 0.3, "steps": 300_000},
        213, 214_171_648,
    ),
}  # fmt: skip


@pytest.mark.parametrize("row", COLUMNS)
def test_a_row_has_the_papers_columns(row):
    settings = settings_of(row)
    model = {name[6:]: value for name, value in settings.items() if name.startswith("model.")}
    head = model["d_model"] // model["num_heads"]
    assert OF_BASE | COLUMNS[row][0] == {
        "N": model["num_layers"], "d_model": model["d_model"], "d_ff": model["d_ff"],
        "h": model["num_heads"], "d_k": model["key_dim"] or head,
        "d_v": model["value_dim"] or head, "P_drop": model["dropout"],
        "eps_ls": settings["training.label_smoothing"], "steps": settings["training.steps"],
        "positions": model["positions"],
    }  # fmt: skip
    others = settings_of(BASE)
    same = {name for name in settings if settings[name] == others[name]}
    varied = {"num_layers", "d_model", "d_ff", "num_heads", "key_dim", "dropout", "positions"}
    varied |= {"label_smoothing", "steps", "preset"}
    varied |= {"keep_last", "average_last"} if row == "big" else set()
    assert {name.rpartition(".")[2] for name in {*settings} - same} <= varied


@pytest.mark.parametrize("row", [row for row, columns in COLUMNS.items() if columns[2]])
def test_its_model_has_as_many_parameters(row):
    columns, printed, exact = COLUMNS[row]
    assert parameter_count(settings_of(row)) == exact
    if printed and "d_model" not in columns:  # the paper's vocabulary cancels out
        _, base_printed, base = COLUMNS["base"]
        assert (exact - base) / 1e6 == pytest.approx(printed - base_printed, abs=1.0)


def test_the_rows_are_the_papers_and_have_files_but_for_the_presets():
    assert list(PRINTED) == list(COLUMNS)
    files = {file.stem for file in Path(main.__code__.co_filename).parent.glob("rows/*.yaml")}
    assert files == {*PRINTED} - {"base", "big"}


# --- Scales --------------------------------------------------------------------------------


def written(changes: dict[str, str]) -> str:
    return ", ".join(f"{name} {value}" for name, value in changes.items())


@pytest.mark.parametrize(
    ("words", "rows"),
    [
        ([], [*PRINTED]),
        (["big", "base"], ["base", "big"]),
        (["B"], ["B-dk16", "B-dk32"]),
        (["E", "C-N2"], ["C-N2", "E-learned"]),
    ],
)
def test_rows_are_chosen_by_name_or_letter(words, rows):
    assert select_rows(words) == rows


@pytest.mark.parametrize("word", ["C-N3", "F", "", "AB", "tiny"])
def test_an_unknown_row_is_refused(word):
    with pytest.raises(UserError, match="Table 3 has no row"):
        select_rows([word])


def test_at_scale_1_a_row_is_its_file_without_averaging():
    alone = {"training.keep_last": 1, "training.average_last": 1}
    for row, settings in plan_rows([*PRINTED], 1).items():
        assert settings == settings_of(row) | alone


@pytest.mark.parametrize(
    ("steps", "of_base", "warmup", "evaluations"),
    [(None, 12_500, 500, 188), (800, 800, 32, 12)],
)
def test_a_scale_divides_widths_and_steps_and_nothing_else(steps, of_base, warmup, evaluations):
    small = plan_rows(["big"], 8, steps)
    assert written(change(small[BASE], settings_of(BASE))) == (
        f"d_model 64, d_ff 256, d_k 8, d_v 8, steps {of_base:,}"
    )
    assert small["big"]["training.steps"] == 3 * of_base
    for settings in small.values():
        assert settings["training.warmup_steps"] == warmup
        assert settings["training.evaluate_every"] == evaluations


# The first column of differences of Table 3, divided by 8 where it is a width.
@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ("base", ""), ("A-h1", "h 1, d_k 64, d_v 64"), ("A-h32", "h 32, d_k 2, d_v 2"),
        ("B-dk16", "d_k 2"), ("C-N8", "N 8"), ("C-d1024", "d_model 128, d_k 16, d_v 16"),
        ("C-ff4096", "d_ff 512"), ("D-drop0.0", "P_drop 0"), ("D-ls0.2", "eps_ls 0.2"),
        ("E-learned", "positions learned"),
        ("big", "d_model 128, d_ff 512, h 16, P_drop 0.3, steps 37,500"),
    ],
)  # fmt: skip
def test_rows_keep_their_meaning(row, expected):
    small = plan_rows([row], 8)
    assert written(change(small[row], small[BASE])) == expected


@pytest.mark.parametrize(
    ("scale", "expected"),
    [
        (32, "key_dim of row A-h32 must stay a whole number. Received: 16 / 32"),
        (3, "d_model of row base must stay an even number. Received: 512 / 3"),
        (512, "d_model of row base must stay an even number. Received: 512 / 512"),
    ],
)
def test_an_impossible_row_is_named(scale, expected):
    with pytest.raises(UserError, match=expected):
        plan_rows([*PRINTED], scale)


def test_possible_rows_of_such_a_scale_are_planned():
    rows = [row for row in PRINTED if row not in ("A-h32", "B-dk16")]
    assert plan_rows(rows, 32)["A-h16"]["model.d_model"] == 16


def test_settings_apply_to_every_row():
    given = {"training.batch_tokens": 99, "model.vocab_size": 9}
    for settings in plan_rows([*PRINTED], 8, None, given).values():
        assert given.items() <= settings.items()


@pytest.mark.parametrize(
    ("rows", "setting", "expected"),
    [
        (PRINTED, "model.dropout=0.3", "undo .* D-drop0.0, D-drop0.2, big"),
        (["base", "B-dk32"], " model.key_dim =7", "undo .* B-dk32"),
        (["base", "E-learned"], "model.positions=sinusoidal", "undo .* E-learned"),
        (["base", "A-h4", "A-h32"], "model.key_dim=2", r"key_dim would undo .* A-h4, A-h32\."),
        (["base", "C-d256", "C-N2"], "model.value_dim=2", r"value_dim would undo .* C-d256\."),
        (["D-ls0.0"], "training.label_smoothing=0.2", "label_smoothing would undo .* D-ls0"),
        (["base"], "training.seed=2", "Use --seeds"),
        (["base"], "training.steps=2", "Use --steps"),
    ],
)
def test_a_setting_that_would_undo_a_row_is_refused(rows, setting, expected):
    with pytest.raises(UserError, match=expected):
        plan_rows([*rows], 8, given=given_settings(["--set", setting]))


def test_a_setting_that_undoes_no_row_is_accepted():
    small = plan_rows(["A-h4"], 8, given={"model.dropout": 0.3})
    assert {settings["model.dropout"] for settings in small.values()} == {0.3}
    narrow = plan_rows(["A-h4"], 8, given={"model.d_model": 32, "model.d_ff": 64})
    assert written(change(narrow["A-h4"], narrow["base"])) == "h 4, d_k 8, d_v 8"


# --- The table and its chart ---------------------------------------------------------------


def made(row, perplexities, bleus):
    seeds = len(bleus)
    return RowResult(
        row, f"of {row}", seeds, Spread.of(perplexities), Spread.of(bleus), 12_345_678
    )


RESULTS = [
    made("base", [10.0, 12.0], [20.0, 21.0]),
    made("C-N2", [14.0, 15.0], [18.0, 17.0]),
    made("big", [8.0], [24.25]),
]


def cells(table):
    lines = table.splitlines()
    assert set(lines[1]) <= set("|:-")
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def test_a_line_has_our_results_and_the_papers_with_differences_from_base():
    table = results_table(RESULTS)
    base, small, big = cells(table)
    assert len(base) == 12
    assert base[2:] == [
        "11.00 ± 1.41", "", "4.92", "", "20.50 ± 0.71", "", "25.8", "", "12.3", "65",
    ]  # fmt: skip
    assert small[:2] == ["C-N2", "of C-N2"]
    assert small[2:10] == [
        "14.50 ± 0.71", "+3.50", "6.11", "+1.19", "17.50 ± 0.71", "-3.00", "23.7", "-2.1",
    ]  # fmt: skip
    assert big[2:] == [
        "8.00", "-3.00", "4.33", "-0.59", "24.25", "+3.75", "26.4", "+0.6", "12.3", "213",
    ]  # fmt: skip


def test_without_base_only_the_paper_has_differences():
    for line in cells(results_table(RESULTS[1:])):
        assert (line[3], line[7]) == ("", "")
        assert line[5] and line[9]


def draw(path, ours=10.0, *more):
    """Draws C-N2, whose perplexity is above base in the paper, and big."""
    pytest.importorskip("matplotlib")
    rows = [made("base", [9.0], [20.0]), made("C-N2", [ours, *more], [18.0]), RESULTS[2]]
    draw_differences(rows, path)
    return path


def test_a_chart_shows_our_results_and_their_spread_without_colour(tmp_path):
    image = pytest.importorskip("matplotlib.image")
    pictures = [
        draw(tmp_path / f"{i}.png", *figures)
        for i, figures in enumerate([(10.0,), (10.0,), (8.0,), (9.0, 11.0)])
    ]
    drawn = [path.read_bytes() for path in pictures]
    assert drawn[0] == drawn[1]
    assert len(set(drawn)) == 3
    pixels = image.imread(pictures[0])[..., :3]
    assert pixels.max() == 1 and pixels.min() < 0.1
    assert (pixels == pixels[..., :1]).all()


def test_a_chart_marks_rows_that_disagree_with_the_paper(tmp_path):
    note = "not in the paper's direction"
    assert note in draw(tmp_path / "opposite.svg", 8.0).read_text("utf-8")
    assert note not in draw(tmp_path / "agree.svg", 10.0).read_text("utf-8")


def parameters(vocab_size):
    """Returns our parameter count and the paper's, in millions, for rows where it has one."""
    lines = cells(
        parameters_table(plan_rows([*PRINTED], 1, None, {"model.vocab_size": vocab_size}))
    )
    return {
        line[0]: (round(int(line[2].replace(",", "")) / 1e6), int(line[5]))
        for line in lines
        if line[5]
    }


def test_with_41_100_pieces_every_row_but_big_has_the_papers_parameters():
    found = parameters(41_100)
    assert len(found) == 11
    assert [row for row, (ours, paper) in found.items() if ours != paper] == ["big"]


def test_the_papers_parameter_counts_contradict_each_other():
    """The parameters of C-d1024 and big differ only by d_ff: two matrices of d_model x 2048 and
    a bias more in each of 6 layers of encoder and decoder."""
    more = 12 * (2 * 1024 * 2048 + 2048) / 1e6
    found = parameters(37_000)
    assert found["big"][0] - found["C-d1024"][0] == pytest.approx(more, abs=1)
    assert more - (found["big"][1] - found["C-d1024"][1]) > 5
    for row, (ours, paper) in found.items():
        assert (ours > paper) if row == "big" else (ours < paper), row


# Table 3 from top to bottom: perplexity, BLEU, parameters in millions where printed.
TABLE_3 = """4.92 25.8 65, 5.29 24.9, 5.00 25.5, 4.91 25.8, 5.01 25.4,
5.16 25.1 58, 5.01 25.4 60, 6.11 23.7 36, 5.19 25.3 50, 4.88 25.5 80,
5.75 24.5 28, 4.66 26.0 168, 5.12 25.4 53, 4.75 26.2 90, 5.77 24.6,
4.95 25.5, 4.67 25.3, 5.47 25.7, 4.92 25.7, 4.33 26.4 213"""


def test_table_3_is_the_papers_in_its_order():
    rows = [tuple(map(float, row.split())) for row in TABLE_3.split(",")]
    printed = [
        (row.perplexity, row.bleu) + ((row.millions,) if row.millions else ())
        for row in PRINTED.values()
    ]
    assert printed == rows


# --- Training ------------------------------------------------------------------------------

# One layer, which excludes the C rows, of two or more layers.
SETTINGS = (
    "model.vocab_size=400", "model.num_layers=1", "training.evaluate_every=6",
    "training.warmup_steps=4", "decoding.beam_size=1", "decoding.max_extra_length=2",
)  # fmt: skip
TRAINED = ["base", "A-h4"]


@pytest.fixture(scope="module")
def arguments(trained_run):
    words = ["--scale", "16", "--steps", "6", "--batch-tokens", "512"]
    words += ["--train", str(trained_run.corpus / "train")]
    words += ["--valid", str(trained_run.corpus / "dev"), "--source", "en", "--target", "de"]
    return words + [word for setting in SETTINGS for word in ("--set", setting)]


@pytest.fixture(scope="module")
def finished(arguments, tmp_path_factory):
    """The folder of two finished rows."""
    output = tmp_path_factory.mktemp("table3") / "rows"
    assert run(main, [*arguments, "--rows", *TRAINED, "--output", str(output)]) == 0
    return output


@pytest.fixture
def copy(finished, tmp_path):
    return Path(shutil.copytree(finished, tmp_path / "rows"))


def test_every_row_is_a_run_with_its_settings(finished):
    names = {"A-h4-seed1", "A-h4.yaml", "base-seed1", "base.yaml", "table3.md"}
    assert names <= {path.name for path in finished.iterdir()}
    for row, heads in zip(TRAINED, (8, 4), strict=True):
        found = Run.open(finished / f"{row}-seed1")
        assert found.is_finished and found.config.training.steps == 6
        assert (found.config.model.num_heads, found.config.model.d_model) == (heads, 32)
        bleu = f"{found.history()[-1]['valid_bleu']:.2f} "
        assert bleu in (finished / "table3.md").read_text("utf-8")
    one, other = (Run.open(finished / f"{row}-seed1").tokenizer for row in TRAINED)
    assert one.read_bytes() == other.read_bytes()


def test_finished_rows_are_kept_and_another_is_resumed(arguments, copy, capfd):
    killed, kept = (copy / f"{row}-seed1/checkpoints/average.npz" for row in ("A-h4", "base"))
    killed.unlink()  # as if it had not finished
    before = kept.stat().st_mtime_ns
    assert run(main, [*arguments, "--rows", *TRAINED, "--output", str(copy)]) == 0
    assert f"{copy}/base-seed1" not in capfd.readouterr().out
    assert kept.stat().st_mtime_ns == before
    assert killed.exists()


def test_a_failing_row_does_not_stop_the_others(arguments, copy, capfd):
    for path in ("base-seed1", "table3.md"):
        (copy / path).rename(copy.parent / path)
    (copy / "base-seed1").mkdir()
    (copy / "base-seed1" / "thesis").touch()
    (copy / "table3.png").unlink(missing_ok=True)
    assert run(main, [*arguments, "--rows", *TRAINED, "--output", str(copy)]) == 1
    printed = capfd.readouterr()
    assert "not created by `tf-transformer train`" in printed.err
    assert "base-seed1 failed, with status 1" in printed.out
    assert re.search(r"\| A-h4 ", printed.out)
    assert "A-h4" in (copy / "table3.md").read_text("utf-8")
    assert not (copy / "table3.png").exists()  # no base, no differences


def test_the_table_shows_each_row_with_its_change(copy, capsys):
    assert run(main, ["--table", "--output", str(copy)]) == 0
    printed = capsys.readouterr().out
    assert re.search(r"\| A-h4 +\| h 4, d_k 8, d_v 8 +\|", printed)
    assert (copy / "table3.md").read_text("utf-8").strip() in printed


def test_results_are_those_of_the_last_evaluation_of_finished_runs(trained_run, tmp_path):
    for name in ("big-seed1", "base-seed2", "base-seed1"):
        shutil.copytree(trained_run.path, tmp_path / name)
    found = finished_rows(tmp_path)
    assert [(row, len(runs)) for row, runs in found.items()] == [("base", 2), ("big", 1)]
    big, last = result("big", found["big"], "h 4"), Run.open(trained_run.path).history()[-1]
    assert (big.perplexity.mean, big.bleu.mean) == (
        last["valid_perplexity"],
        last["valid_bleu"],
    )
    assert big.parameters == tf_transformer.load(trained_run.path).model.count_params()
    (tmp_path / "base-seed1" / "checkpoints" / "average.npz").unlink()
    assert len(finished_rows(tmp_path)["base"]) == 1


def test_params_only_needs_no_data(tmp_path, capsys):
    assert run(main, ["--params-only"]) == 0
    printed = capsys.readouterr().out
    assert re.search(r"\| base +\| +\| +63,045,632 +\| +63\.0 ", printed)
    assert all(f"| {row} " in printed for row in PRINTED)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        (["--scale", "32"], "A-h32"),
        (["--rows", "Z"], "no row 'Z'"),
        (["--set", "model.dropout=0.5"], "undo"),
        (["--table", "--output", "nothing"], "No row in nothing has a result yet"),
        (["--seeds", "1", "-1"], "expected"),
    ],
)
def test_mistakes_are_reported_before_any_work(more, expected, refused):
    assert expected in refused(main, more)
