"""train.py from end to end: its output, its files, and resuming."""

import json
import re
from pathlib import Path

from command_line import SIGNATURE
from helpers import bits_of

from tf_transformer.cli.main import main
from tf_transformer.config import Config
from tf_transformer.data import builtin
from tf_transformer.data.vocabulary import tokenizer_settings
from tf_transformer.run import Run

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


def test_training_learns_to_translate_its_dev_sentences(trained_run):
    assert float(re.findall(r"\ndev BLEU ([\d.]+)", trained_run.stdout)[-1]) > 20
    losses = [record["valid_loss"] for record in history(trained_run.path)]
    assert len(losses) == 3 and losses == sorted(losses, reverse=True)


def test_the_run_directory_has_all_files_that_later_commands_need(trained_run):
    names = {path.name for path in trained_run.path.iterdir()}
    assert names == {
        "card.md", "config.json", "versions.json", "tokenizer.model", "metrics.jsonl", "data",
        "logs", "checkpoints",
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
    sizes = ("num_layers=1", "d_model=16", "d_ff=16")
    settings = [word for each in sizes for word in ("--set", f"model.{each}")]
    command = ["train", "--model", "big", "--batch-tokens", "1024", *settings]
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
    assert "finished at step 240; to train further, add a larger --set training" in stdout
    assert not re.search(EVALUATION, stdout)
    assert (
        re.search("\ndev BLEU.*", stdout)[0] == re.search("\ndev BLEU.*", trained_run.stdout)[0]
    )


def test_training_resumes_from_the_checkpoint_before_a_damaged_one(trained_run, copied, capsys):
    newest = copied / "checkpoints" / "state-00000240.npz"
    newest.write_bytes(newest.read_bytes()[:-1000])
    assert main(["train", *trained_run.options, "--output", str(copied)]) == 0
    stdout = capsys.readouterr().out.splitlines()
    assert [line for line in stdout if "damaged" in line] == [
        "checkpoint of step 240 is damaged: not used"
    ]
    assert "resuming from step 160" in stdout
    expected = trained_run.path / "checkpoints"
    for name in (newest.name, "step-00000240.npz", "best.npz"):
        assert bits_of(newest.with_name(name)) == bits_of(expected / name), name
    assert len(history(copied)) == 3


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
    options += ["--set", "training.steps=2", "--set", "training.evaluate_every=2"]
    options += ["--set", "decoding.beam_size=1", "--set", "decoding.max_extra_length=2"]
    assert main(["train", *options, "--output", str(run)]) == 0
    assert "training a tokenizer" not in capsys.readouterr().out
    assert (run / "tokenizer.model").read_bytes() == model.read_bytes()
    assert Run.open(run).config.model.vocab_size == 500


def test_a_vocabulary_larger_than_the_text_has_is_refused(trained_run, tmp_path, capsys):
    options = [each.replace("vocab_size=600", "d_model=16") for each in trained_run.options]
    assert main(["train", "--model", "base", *options, "--output", str(tmp_path / "run")]) == 1
    assert "error: `vocab_size` must be at most" in capsys.readouterr().err
