"""What benchmarks make of their rounds: ratios, slopes, tables, files, pictures."""

import json

import numpy as np
import pytest
import training_step
from harness.contender import Answer
from harness.report import shown
from harness.rounds import Measured, Spread, fastest, times_as_fast
from harness.slopes import slope

from tf_transformer.config import ModelConfig


def measured(*seconds: float, tokens: int = 100, **result) -> Measured:
    answers = [Answer({"tokens": tokens} | result, s, 2 * s, 10**9) for s in seconds]
    return Measured({"python": "3.11"}, answers[0], answers)


def test_ratios_are_of_the_same_round():
    # The machine is three times slower in the second round, and that changes nothing.
    ours, theirs = measured(1, 3, 1), measured(2, 6, 2)
    assert times_as_fast(ours, theirs) == Spread(2, 2, 2)
    assert times_as_fast(theirs, ours, cpu=True) == Spread(0.5, 0.5, 0.5)


def test_each_contender_has_its_best_number_of_threads():
    seconds = {
        "A, threads: 1": 2,
        "A, threads: 2": 3,
        "B, x, threads: 1": 5,
        "B, x, threads: 2": 4,
    }
    found = fastest({name: measured(each) for name, each in seconds.items()})
    assert {name + each.note: each.seconds().median for name, each in found.items()} == {
        "A (1 thread)": 2, "B, x (2 threads)": 4
    }  # fmt: skip


def test_training_table_compares_with_ours(capsys):
    found = {
        training_step.OURS: measured(2.0, 2.0),
        "MarianMT": measured(4.0, 4.0),
        training_step.FLOOR: measured(1.0, 1.0),
    }
    options = training_step._parse(["--peak-tflops", "2", "--rounds", "2"])
    training_step._say("base, float32", found, flops=int(1e12), options=options)
    printed = [line for line in capsys.readouterr().out.splitlines() if line[:1] == "|"]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in printed]
    ours, marian, floor = (dict(zip(rows[0], row, strict=True)) for row in rows[2:])
    assert [row["times as fast"][:4] for row in (ours, marian, floor)] == [
        "1.00",
        "0.50",
        "2.00",
    ]
    assert ours["tokens/s"] == "50 (50-50)"
    assert (ours["TFLOP/s"], ours["utilisation"]) == ("0.500", "25.0%")


@pytest.fixture
def canned(monkeypatch):
    """`canned(program, found)`: it measures `found(spec, case)`, and has no options."""

    def can(program, found) -> None:
        def measure(specs, cases, options):
            for title, case in cases.items():
                yield title, {each.name: found(each, case) for each in specs}

        monkeypatch.setattr(program, "measure", measure)
        monkeypatch.setattr("sys.argv", [f"{program.__name__}.py"])
        for name, value in (("prepared_corpus", "corpus"), ("make_file", "batches")):
            monkeypatch.setattr(program, name, lambda *_, v=value, **__: v, raising=False)

    return can


def test_scaling_keeps_every_point_by_its_title(tmp_path, capsys, canned):
    import scaling

    canned(scaling, lambda spec, case: measured(case["beam"] ** 1.5))
    scaling.main(["--axes", "beam", "--largest", "4", "--output", str(tmp_path)])
    out = capsys.readouterr().out
    assert "beam: 1.50 above the limit" in out and "python 3.11" in out
    found = json.loads((tmp_path / "scaling.json").read_text())["results"]["beam"]
    assert list(found) == ["beam 1", "beam 2", "beam 4"]
    assert found["beam 4"]["tf_transformer"]["answers"][0]["seconds"] == 8
    assert (tmp_path / "scaling-memory.png").stat().st_size > 0


def test_input_pipeline_compares_all_with_what_trains(tmp_path, capsys, canned):
    import input_pipeline

    kinds = {"encode": 0.25, "batches": 0.01, "train-disk": 2, "train-memory": 1}
    canned(input_pipeline, lambda spec, case: measured(kinds[spec.options["kind"]]))
    input_pipeline.main(["--model", "tiny", "--output", str(tmp_path)])
    out = capsys.readouterr().out
    rows = [line.split("|") for line in out.splitlines() if line.startswith("|")]
    assert [row[3].strip() for row in rows[2:]] == ["4.0", "100.0", "0.5", "1.0"]
    assert "0.500 (0.500-0.500) times as fast" in out
    found = json.loads((tmp_path / "input_pipeline.json").read_text())["results"]
    assert list(found) == ["tiny, batches of 2048 positions"]


def test_layer_cost_end_to_end(tmp_path, capsys, monkeypatch):
    import layer_cost

    monkeypatch.setattr("sys.argv", ["layer_cost.py"])
    options = (
        "--layers convolution --lengths 8 16 --rounds 2 --d-model 8 --num-heads 2 --output"
    )
    layer_cost.main([*options.split(), str(tmp_path)])
    out = capsys.readouterr().out
    assert "tensorflow" in out and "n = 16, CPU ms" in out
    found = json.loads((tmp_path / "layer_cost.json").read_text())
    answers = found["results"]["n = 8"]["convolution"]["answers"]
    assert len(answers) == 2 and np.all([answer["seconds"] > 0 for answer in answers])
    assert answers[0]["result"]["gradients"] == 3  # of the input, the kernel and the bias
    assert (tmp_path / "layer_cost.png").stat().st_size > 0


def test_heads_are_compared_by_cpu_time(tmp_path, capsys, canned):
    import layer_cost

    canned(layer_cost, lambda spec, case: measured(3 if case["backward"] else 1))
    layer_cost.main(["--heads", "1", "4", "--lengths", "8", "--output", str(tmp_path)])
    out = capsys.readouterr().out
    # `measured` has twice the CPU time; a round is 20 passes.
    assert out.count("100.0 (100.0-100.0)") == out.count("300.0 (300.0-300.0)") == 2
    assert (tmp_path / "layer_cost_heads.png").stat().st_size > 0


def test_choices_are_settings_whose_times_are_divided_by_the_papers(tmp_path, capsys, canned):
    import choices

    models = []

    def found(spec, case):
        models.append(ModelConfig(**spec.options.get("model", spec.options)))
        return measured(2 if spec.name == choices.PAPER else 3, parameters=7)

    canned(choices, found)
    choices.main(["--output", str(tmp_path)])
    assert len(set(models[:9])) == 9 and models[:9] == models[9:]
    rows = [line.split("|") for line in capsys.readouterr().out.splitlines() if line[:1] == "|"]
    assert [row[4].strip()[:4] for row in rows[2:]] == ["1.00", *["1.50"] * 8]
    assert rows[3][3].strip()[:4] == "1.50"  # 6 s of the processor in 4 updates


def test_spread_is_printed():
    assert shown(Spread(1204.4, 1100, 1250)) == "1,204 (1,100-1,250)"


def test_slope_is_the_power_at_large_values():
    points = [(x, 1000 + x**2) for x in (1, 2, 4, 500, 1000, 2000)]
    assert slope(points) == pytest.approx(2, abs=0.05)
    assert slope([(1, 1), (2, 8)]) == pytest.approx(3)


def test_the_fit_finds_a_power_law():
    from loss_by_size import fit

    losses = {(n, pairs): 9 * n**-0.1 * pairs**-0.2 for n in (10, 300) for pairs in (5, 70)}
    assert fit(losses) == pytest.approx((9, 0.1, 0.2))
