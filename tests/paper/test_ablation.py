"""Scaled rows of Table 3, the folder of their runs, and the table and chart of results."""

import dataclasses
import shutil

import pytest
from command_line import tree

from tf_transformer.base.errors import UserError
from tf_transformer.config.presets import TABLE3, preset
from tf_transformer.evaluation import Spread
from tf_transformer.paper.ablation import (
    BASE,
    ROWS,
    TABLE3_PRINTED,
    RowResult,
    change,
    check_folder,
    draw_differences,
    finished_rows,
    parameters_table,
    plan_rows,
    read_settings,
    results_table,
    select_rows,
    write_report,
)
from tf_transformer.reports.cost import parameter_count
from tf_transformer.run import Run

# --- Configurations ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "rows"),
    [
        ([], [*ROWS]),
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


def test_at_scale_1_a_row_is_its_preset_without_averaging():
    for row, config in plan_rows([*ROWS], 1).items():
        expected = TABLE3[ROWS[row]]
        assert config.model == expected.model
        assert config.decoding == expected.decoding
        assert config.training == dataclasses.replace(
            expected.training, keep_last=1, average_last=1
        )


@pytest.mark.parametrize(
    ("steps", "of_base", "warmup", "evaluations"),
    [(None, 12_500, 500, 188), (800, 800, 32, 12)],
)
def test_a_scale_divides_widths_and_steps_and_nothing_else(steps, of_base, warmup, evaluations):
    small = plan_rows(["big"], 8, steps)
    assert change(small[BASE], preset(BASE)) == (
        f"d_model 64, d_ff 256, d_k 8, d_v 8, steps {of_base:,}"
    )
    assert small["big"].training.steps == 3 * of_base
    for config in small.values():
        assert config.training.warmup_steps == warmup
        assert config.training.evaluate_every == evaluations


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
    assert change(small[row], small[BASE]) == expected


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
        plan_rows([*ROWS], scale)


def test_possible_rows_of_such_a_scale_are_planned():
    rows = [row for row in ROWS if row not in ("A-h32", "B-dk16")]
    assert plan_rows(rows, 32)["A-h16"].model.d_model == 16


def test_settings_apply_to_every_row():
    values = {"training.batch_tokens": 99}
    for config in plan_rows([*ROWS], 8, None, values, ["model.vocab_size=9"]).values():
        assert (config.training.batch_tokens, config.model.vocab_size) == (99, 9)


@pytest.mark.parametrize(
    ("rows", "setting", "expected"),
    [
        (ROWS, "model.dropout=0.3", "undo .* D-drop0.0, D-drop0.2, big"),
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
        plan_rows([*rows], 8, overrides=[setting])


def test_a_setting_that_undoes_no_row_is_accepted():
    small = plan_rows(["A-h4"], 8, overrides=["model.dropout=0.3"])
    assert {config.model.dropout for config in small.values()} == {0.3}
    narrow = plan_rows(["A-h4"], 8, overrides=["model.d_model=32", "model.d_ff=64"])
    assert change(narrow["A-h4"], narrow["base"]) == "h 4, d_k 8, d_v 8"


# --- The folder ----------------------------------------------------------------------------


def test_results_are_those_of_the_last_evaluation_of_finished_runs(trained_run, tmp_path):
    for name in ("big-seed1", "base-seed2", "base-seed1"):
        shutil.copytree(trained_run.path, tmp_path / name)
    run = Run.open(trained_run.path)
    base, big = finished_rows(tmp_path, run.config.replace({"model.num_heads": 1}))
    assert (base.row, base.seeds, big.row, big.seeds) == ("base", 2, "big", 1)
    assert big.change == "h 4, d_k 16, d_v 16"
    assert big.perplexity.mean == run.history()[-1]["valid_perplexity"]
    assert big.bleu.mean == run.history()[-1]["valid_bleu"]
    assert big.parameters == parameter_count(run.config.model)
    Run.open(tmp_path / "base-seed1").checkpoints.average.unlink()
    assert finished_rows(tmp_path, run.config)[0].seeds == 1


def test_a_folder_without_finished_rows_has_no_table(tmp_path):
    with pytest.raises(UserError, match="no results yet"):
        write_report(tmp_path)
    (tmp_path / "base.json").write_text(preset(BASE).to_json())
    assert read_settings(tmp_path) == preset(BASE)
    with pytest.raises(UserError, match="No row in .* has a result yet"):
        write_report(tmp_path)


def test_a_folder_with_other_files_is_refused_and_unchanged(trained_run, tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "corpus.en").write_text("years of work")
    run = shutil.copytree(trained_run.path, tmp_path / "run")
    before = tree(tmp_path)
    for folder in (tmp_path, tmp_path / "data" / "corpus.en", run):
        with pytest.raises(UserError, match="ablate`. Give --output a new folder"):
            check_folder(folder, preset(BASE))
    check_folder(tmp_path / "rows", preset(BASE))
    assert tree(tmp_path) == before


def test_rows_with_other_settings_are_refused(tmp_path):
    (tmp_path / "base.json").write_text(preset(BASE).to_json())
    other = preset(BASE).replace({"model.vocab_size": 500})
    check_folder(tmp_path, other)  # before the first row, settings can be corrected
    (tmp_path / "base-seed1").mkdir()
    check_folder(tmp_path, preset(BASE).replace({"training.save_minutes": 1.0}))
    with pytest.raises(UserError, match=r"model\.vocab_size was 37000, now 500\. Use the same"):
        check_folder(tmp_path, other)


# --- The table and its chart ---------------------------------------------------------------


def result(row, perplexities, bleus):
    seeds = len(bleus)
    return RowResult(
        row, f"of {row}", seeds, Spread.of(perplexities), Spread.of(bleus), 12_345_678
    )


RESULTS = [
    result("base", [10.0, 12.0], [20.0, 21.0]),
    result("C-N2", [14.0, 15.0], [18.0, 17.0]),
    result("big", [8.0], [24.25]),
]


def cells(table):
    return [[str(cell) for cell in row] for row in table.rows]


def test_a_line_has_our_results_and_the_papers_with_differences_from_base():
    table = results_table(RESULTS)
    base, small, big = cells(table)
    assert len(table.header) == 12
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
    rows = [result("base", [9.0], [20.0]), result("C-N2", [ours, *more], [18.0]), RESULTS[2]]
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
        parameters_table(plan_rows([*ROWS], 1, None, {"model.vocab_size": vocab_size}))
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


def test_table_3_is_the_papers_in_the_order_of_the_presets():
    rows = [tuple(map(float, row.split())) for row in TABLE_3.split(",")]
    printed = [
        (row.perplexity, row.bleu) + ((row.millions,) if row.millions else ())
        for row in TABLE3_PRINTED.values()
    ]
    assert printed == rows
    assert list(TABLE3_PRINTED) == list(TABLE3)
