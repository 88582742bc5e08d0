"""train.py from end to end: its output, files, recipes and seeds, and resuming."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from command_line import SIGNATURE, assert_refused, run_words_here, train_options

from tf_transformer.base.errors import UserError
from tf_transformer.cli.main import main
from tf_transformer.cli.options import config_of
from tf_transformer.config import Config
from tf_transformer.data import builtin
from tf_transformer.data.vocabulary import tokenizer_settings
from tf_transformer.run import Run
from tf_transformer.run.run import what_is_unfinished
from tf_transformer.training import sessions
from tools.storm.lab import SMALLEST, set_options

EVALUATION = (
    r"step +[\d,]+  loss [\d.]+  perplexity [\d.]+  dev perplexity [\d.]+  dev BLEU [\d.]+  "
    r"[\d,]+ tokens/s(  best)?"
)
# All lines that train.py prints, in order, each with a quantifier.
REPORT = (
    (r"training a tokenizer of 600 pieces", ""),
    (r"train: 300 pairs read, 300 kept", ""),
    (r"valid: 40 pairs read, 40 kept", ""),
    (r"\d batch shapes \(rows x length\): \d+x\d+(, \d+x\d+)*", ""),
    (r"\d+ steps an epoch, on average \d+ source and \d+ target tokens a batch", ""),
    (r"padding: \d+\.\d% of all positions", ""),
    (r"warning  overlap: 40 of 40 pairs of dev .+", ""),  # true of this corpus
    (r"device: (CPU \(\d+ cores\)|\S.+)", ""),
    (r"model: [\d,]+ parameters", ""),
    (r"disk: 1.5 MB for each of 2 states to .+, and 0.5 MB for each of at most 6 files .+", ""),
    (r"memory: some \d+ MB for weights and Adam, plus the layers of \d,\d+ positions", ""),
    (r"190 steps to go, about \d+ (s|min)", ""),
    (EVALUATION, "{3}"),
    (r"average of the last 2 checkpoints: dev BLEU [\d.]+", ""),
    (r"\n  source     .+\n  reference  .+\n  model      .+", "{5}"),
    (rf"\ndev BLEU [\d.]+  {SIGNATURE}", ""),
    (r"dev sentences translated exactly: [\d.]+ %", ""),
    (r"\nThe run is in .+\. Next:", ""),
    # With the program's path unless its environment is activated.
    (r"  echo '.+' \| (\S+/)?tf-transformer translate .+", ""),
    (r"  (\S+/)?tf-transformer export .+ --output exported/run", ""),
)


def history(path: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_training_prints_its_report_and_nothing_else(trained_run):
    pattern = "".join(f"(?:{line}\n){repeated}" for line, repeated in REPORT)
    assert re.fullmatch(pattern, trained_run.stdout), trained_run.stdout
    assert trained_run.stderr == ""


def test_the_run_directory_has_all_files_that_later_commands_need(trained_run):
    names = {path.name for path in trained_run.path.iterdir()}
    assert names == {
        "card.md", "config.json", "versions.json", "tokenizer.model", "metrics.jsonl", "data",
        "logs", "checkpoints", ".lock",
    }  # fmt: skip
    assert sorted(contents(trained_run.path / "checkpoints")) == [
        "average.npz", "best.npz", "state-00000160.npz", "state-00000240.npz",
        "step-00000080.npz", "step-00000160.npz", "step-00000240.npz",
    ]  # fmt: skip
    config = Config.from_json((trained_run.path / "config.json").read_text())
    assert (config.model.d_model, config.training.steps, config.data.target) == (64, 240, "de")


def test_checkpoints_are_as_large_and_as_many_as_announced(trained_run):
    """A state holds the weights and Adam's two moments."""
    pattern = r"disk: ([\d.]+) MB for each of 2 states .+ ([\d.]+) MB for each of at most (\d) "
    state, weights, most = map(float, re.search(pattern, trained_run.stdout).groups())
    files = set((trained_run.path / "checkpoints").iterdir())
    states = {file for file in files if file.name.startswith("state")}
    assert len(states) == 2 and len(files - states) <= most
    for kind, announced in ((states, state), (files - states, weights)):
        assert {round(file.stat().st_size / 1e6 - announced, 1) for file in kind} == {0.0}


def test_a_large_presets_vocabulary_shrinks_to_fit_the_built_in_corpus(tmp_path, capsys):
    """`--model big` asks for 37,000 pieces."""
    command = ["train", "--model", "big", "--batch-tokens", "1024", *set_options(*SMALLEST)]
    session = [*command, "--output", str(tmp_path / "run"), "--stop-after", "1 steps"]
    for _ in range(2):  # begins, and resumes
        assert main(session) == 0
        line = "vocabulary: 4,714 pieces instead of 37,000: the built-in corpus has no more\n"
        assert line in capsys.readouterr().out
    assert Run.open(tmp_path / "run").config.model.vocab_size == builtin.MOST_PIECES


def test_a_finished_run_is_not_trained_further(trained_run, copied, capsys):
    before = contents(copied / "checkpoints"), history(copied)
    assert main(["train", *trained_run.options, "--output", str(copied)]) == 0
    assert (contents(copied / "checkpoints"), history(copied)) == before
    stdout = capsys.readouterr().out
    assert "finished at step 240; to train further, set a larger `training.steps`" in stdout
    assert not re.search(EVALUATION, stdout)
    assert (
        re.search("\ndev BLEU.*", stdout)[0] == re.search("\ndev BLEU.*", trained_run.stdout)[0]
    )


def test_runs_can_share_a_vocabulary(trained_run, tmp_path, capsys):
    texts = [str(trained_run.corpus / name) for name in ("train.en", "train.de")]
    model = tmp_path / "shared.model"
    arguments = ["--vocab-size", "500", "--kind", "unigram", "--output", str(model)]
    arguments += ["--normalization", "nfkc", "--character-coverage", "0.9995"]
    assert main(["tokenizer", *texts, *arguments]) == 0
    assert capsys.readouterr().out == f"{model}: 500 pieces\n"
    expected = {"data.normalization": "nfkc", "data.character_coverage": 0.9995}
    assert tokenizer_settings(model) == expected

    run = tmp_path / "run"
    options = [*trained_run.options, "--set", f"data.tokenizer={model}"]
    assert main(["train", *options, "--stop-after", "1 steps", "--output", str(run)]) == 0
    assert "training a tokenizer" not in capsys.readouterr().out
    assert (run / "tokenizer.model").read_bytes() == model.read_bytes()
    assert Run.open(run).config.model.vocab_size == 500


def test_a_vocabulary_larger_than_the_text_has_is_refused(trained_run, tmp_path, capsys):
    options = [each.replace("vocab_size=600", "d_model=16") for each in trained_run.options]
    assert main(["train", "--model", "base", *options, "--output", str(tmp_path / "run")]) == 1
    assert "error: `vocab_size` must be at most" in capsys.readouterr().err


def configure(*words):
    return config_of(train_options(words))


def test_a_recipe_overrides_the_preset_and_options_override_the_recipe():
    config = configure("--model", "multi30k", "--recipe", "t2t", "--batch-tokens", "99")
    assert (config.training.beta_2, config.training.warmup_steps) == (0.997, 8_000)
    assert (config.model.d_model, config.training.steps) == (128, 6_000)
    assert config.training.batch_tokens == 99
    config = configure("--recipe", "paper", "--set", "training.warmup_steps=7")
    assert (config.training.warmup_steps, config.training.batch_tokens) == (7, 25_000)
    assert configure("--model", "multi30k").training.warmup_steps == 2_000


def test_a_recipe_overrides_the_file_and_options_override_both(tmp_path):
    file = tmp_path / "a.yaml"
    file.write_text("{preset: multi30k, training: {beta_2: 0.9, warmup_steps: 5, steps: 7}}")
    words = ("--config", str(file), "--recipe", "t2t", "--set", "training.warmup_steps=6")
    config = configure(*words)
    assert (config.preset, config.model.d_model, config.training.steps) == ("multi30k", 128, 7)
    assert (config.training.beta_2, config.training.warmup_steps) == (0.997, 6)
    file = tmp_path / "config.json"
    file.write_text(configure("--model", "multi30k").to_json())
    assert configure("--config", str(file), "--recipe", "t2t").training.beta_2 == 0.997


def test_a_preset_beside_a_config_json_is_refused_if_it_is_another(tmp_path):
    file = tmp_path / "config.json"
    file.write_text(configure("--model", "multi30k").to_json())
    assert configure("--config", str(file), "--model", "multi30k").model.d_model == 128
    with pytest.raises(UserError, match="a preset would change nothing.* and `model` big"):
        configure("--config", str(file), "--model", "big")


def test_a_run_of_an_unknown_task_is_refused(workplace, capsys):
    config = Path("begun/config.json")
    config.write_text(config.read_text().replace("{", '{"task": "poetry",', 1))
    message = "`task` must be one of .*. Received: 'poetry'"
    assert_refused(capsys, ["translate", "begun"], message, status=1)


def test_an_unknown_recipe_is_refused(workplace, capsys):
    expected = "no recipe 'papre'. Did you mean 'paper'"
    assert_refused(capsys, ["train", "--recipe", "papre"], expected, status=1)


SMALL = (
    *SMALLEST, "model.vocab_size=400", "training.steps=4", "training.evaluate_every=4",
    "training.average_last=1", "training.batch_tokens=256",
)  # fmt: skip


@pytest.fixture
def words(trained_run, monkeypatch) -> list[str]:
    monkeypatch.setattr(sessions, "run_child", run_words_here)
    Path("small.yaml").write_text("".join(f"{each.replace('=', ': ')}\n" for each in SMALL))
    dev = str(trained_run.corpus / "dev")
    data = ["--train", dev, "--valid", dev, "--source", "en", "--target", "de"]
    return ["train", "--config", "small.yaml", *data]


def test_each_seed_is_trained_once_and_a_summary_is_printed(words, capfd):
    both = [*words, "--seeds", "3,4", "--output", "all"]
    assert main([*both, "--stop-after", "0.0000001s"]) == 0
    assert "run the same command again to resume" in capfd.readouterr().out
    assert main([*words, "--set", "training.seed=3", "--output", "all/seed-3"]) == 0
    kept = Path("all/seed-3/checkpoints/best.npz").stat().st_mtime_ns
    capfd.readouterr()
    assert main(both) == 0
    printed = capfd.readouterr().out
    assert "resuming" not in printed and "finished at" not in printed
    assert Path("all/seed-3/checkpoints/best.npz").stat().st_mtime_ns == kept
    assert [Run.open(f"all/seed-{n}").config.training.seed for n in (3, 4)] == [3, 4]
    table = Path("all/seeds.md").read_text("utf-8")
    rows = [re.findall(r"[^|\s]+", line) for line in table.splitlines()]
    columns = dict(zip(rows[0], zip(*rows[2:], strict=True), strict=True))
    assert columns["seed"] == ("3", "4", "mean", "deviation")
    one, other, mean, deviation = map(float, columns["perplexity"])
    assert mean == pytest.approx(np.mean([one, other]), abs=1e-4)
    assert deviation == pytest.approx(np.std([one, other], ddof=1), abs=2e-4)
    assert one != other and table in printed

    Path("all/seed-3/checkpoints/best.npz").unlink()
    assert main(both) == 1
    assert "seed-3 must have the scores of its best weights" in capfd.readouterr().err
    more = [*words, "--seeds", "3,4,5", "--output", "all", "--set", "model.dropout=0.3"]
    assert main(more) == 1
    assert "another configuration: model.dropout was 0.1, now 0.3" in capfd.readouterr().err
    run = Run.open("all/seed-4")
    assert not what_is_unfinished(run, run.config.training.steps)
    run.checkpoints.average.unlink()  # as if it had not finished
    assert what_is_unfinished(run, run.config.training.steps)


@pytest.mark.parametrize(
    ("options", "status", "expected"),
    [
        (["--seeds", "1"], 2, "--seeds must be different seeds such as 1,2,3. Received: '1'"),
        (["--seeds", "1,1"], 2, "must be different seeds"),
        (["--seeds", "1,x"], 2, "must be an int from 0"),
        (["--seeds", "1,2", "--set", "training.seed=3"], 1, "--seeds or --set training.seed"),
        (["--seeds", "1,2", "--stop-after", "5 steps"], 1, "--seeds stops after a time"),
        (["--seeds", "1,2", "--output", "taken"], 1, "not created by `train --seeds`"),
    ],
)
def test_options_that_exclude_seeds_are_refused(words, capsys, options, status, expected):
    Path("taken").mkdir()
    Path("taken/thesis").touch()
    assert_refused(capsys, [*words, *options], expected, status=status)
