"""The whole way through the command line: train, go on, translate, evaluate, score, export."""

import json
import re
import runpy
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from command_line import (
    ROOT,
    TF_TRANSFORMER,
    TrainedRun,
    environment,
    run_command,
    stdin_of,
    train_command,
)
from sacrebleu.metrics import BLEU

from tf_transformer.cli.main import main
from tf_transformer.config import Config, DecodingConfig
from tf_transformer.decoding.translator import Translator
from tf_transformer.run import Run
from tf_transformer.tasks.translation import load_translator

SIGNATURE = r"nrefs:1\|case:mixed\|eff:no\|tok:13a\|smooth:exp\|version:[\d.]+"
EVALUATION = (
    r"step +[\d,]+  loss [\d.]+  perplexity [\d.]+  dev perplexity [\d.]+  dev BLEU [\d.]+  "
    r"[\d,]+ tokens/s(  best)?"
)
# All that train.py may print, in order; "+" says that a line occurs more than once.
REPORT = (
    (r"training a tokenizer of 600 pieces", ""),
    (r"train: 300 pairs read, 300 kept", ""),
    (r"valid: 40 pairs read, 40 kept", ""),
    (r"\d batch shapes \(rows x length\): \d+x\d+(, \d+x\d+)*", ""),
    (r"\d+ steps an epoch, on average \d+ source and \d+ target tokens a batch", ""),
    (r"padding: \d+\.\d% of all positions", ""),
    (r"model: [\d,]+ parameters", ""),
    (EVALUATION, "{3}"),
    (r"average of the last 2 checkpoints: dev BLEU [\d.]+", ""),
    (r"\n  source     .+\n  reference  .+\n  model      .+", "{5}"),
    (rf"\ndev BLEU [\d.]+  {SIGNATURE}", ""),
    (r"dev sentences translated exactly: [\d.]+ %", ""),
    (r"\nThe run is in .+\. Next:", ""),
    (r"  echo 'Your sentence\.' \| tf-transformer translate .+", ""),
    (r"  python export\.py .+ --output exported/run", ""),
)


def history(path: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def assert_same_arrays(path: Path, expected: Path) -> None:
    with np.load(path) as found, np.load(expected) as wanted:
        assert set(found) == set(wanted)
        for name in wanted:
            assert found[name].tobytes() == wanted[name].tobytes(), name


@pytest.fixture
def copied(trained_run, tmp_path) -> Path:
    """A copy of the run, to change."""
    return Path(shutil.copytree(trained_run.path, tmp_path / "run"))


@pytest.fixture(scope="module")
def n_best(trained_run) -> Translator:
    """The Python translator, with the two best of three beams."""
    run = Run.open(trained_run.path)
    return load_translator(run, "best", DecodingConfig(beam_size=3, alpha=0.8), 2)


# --- train.py ----------------------------------------------------------------------------


def test_training_prints_its_report_and_not_a_line_more(trained_run):
    pattern = "".join(f"(?:{line}\n){repeated}" for line, repeated in REPORT)
    assert re.fullmatch(pattern, trained_run.stdout), trained_run.stdout
    assert trained_run.stderr == ""


def test_training_learns_to_translate_its_sentences(trained_run):
    assert float(re.findall(r"\ndev BLEU ([\d.]+)", trained_run.stdout)[-1]) > 20
    losses = [record["valid_loss"] for record in history(trained_run.path)]
    assert len(losses) == 3 and losses == sorted(losses, reverse=True)


def test_the_run_directory_holds_all_that_later_commands_need(trained_run):
    names = {path.name for path in trained_run.path.iterdir()}
    assert names == {
        "config.json", "versions.json", "tokenizer.model", "metrics.jsonl", "data", "logs",
        "checkpoints",
    }  # fmt: skip
    assert sorted(contents(trained_run.path / "checkpoints")) == [
        "average.npz", "best.npz", "step-00000080.npz", "step-00000160.npz",
        "step-00000240.npz",
    ]  # fmt: skip
    config = Config.from_json((trained_run.path / "config.json").read_text())
    assert (config.model.d_model, config.training.steps, config.data.target) == (64, 240, "de")


def test_a_finished_run_is_not_trained_further(trained_run, copied, capsys):
    before = contents(copied / "checkpoints"), history(copied)
    assert main(["train", *trained_run.options, "--output", str(copied)]) == 0
    assert (contents(copied / "checkpoints"), history(copied)) == before
    stdout = capsys.readouterr().out
    assert "going on from step 240" in stdout
    assert not re.search(EVALUATION, stdout)
    assert re.search("\ndev BLEU.*", stdout)[0] == re.search("\ndev BLEU.*", trained_run.stdout)[0]


def test_a_killed_run_goes_on_to_the_same_weights_bit_for_bit(trained_run, tmp_path):
    command = train_command(trained_run.options, tmp_path / "run")
    checkpoints = tmp_path / "run" / "checkpoints"
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, env=environment()) as process:
        while process.poll() is None and not (checkpoints / "step-00000080.npz").exists():
            time.sleep(0.01)
        process.kill()
    assert process.returncode == -signal.SIGKILL
    assert not (checkpoints / "step-00000240.npz").exists()

    resumed = run_command(command)
    assert resumed.returncode == 0 and resumed.stderr == b""
    assert re.search(rb"^going on from step (80|160)$", resumed.stdout, re.MULTILINE)
    expected = trained_run.path / "checkpoints"
    for name in ("step-00000160.npz", "step-00000240.npz", "average.npz", "best.npz"):
        assert_same_arrays(checkpoints / name, expected / name)
    bleus = [[record["valid_bleu"] for record in history(path)]
             for path in (tmp_path / "run", trained_run.path)]  # fmt: skip
    assert bleus[0] == bleus[1]


def test_training_falls_back_to_the_checkpoint_before_a_damaged_one(
    trained_run, copied, capsys
):
    newest = copied / "checkpoints" / "step-00000240.npz"
    newest.write_bytes(newest.read_bytes()[:-1000])
    assert main(["train", *trained_run.options, "--output", str(copied)]) == 0
    stdout = capsys.readouterr().out.splitlines()
    assert [line for line in stdout if "damaged" in line] == [
        "checkpoint of step 240 is damaged: not used"
    ]
    assert "going on from step 160" in stdout
    assert_same_arrays(newest, trained_run.path / "checkpoints" / newest.name)
    assert len(history(copied)) == 3


def test_a_vocabulary_made_once_serves_several_runs(trained_run, tmp_path, capsys):
    texts = [str(trained_run.corpus / name) for name in ("train.en", "train.de")]
    model = tmp_path / "shared.model"
    arguments = ["--vocab-size", "500", "--kind", "unigram", "--output", str(model)]
    assert main(["tokenizer", *texts, *arguments]) == 0
    assert capsys.readouterr().out == f"{model}: 500 pieces\n"

    run = tmp_path / "run"
    options = [*trained_run.options, "--set", f"data.tokenizer={model}"]
    options += ["--set", "training.steps=2", "--set", "training.evaluate_every=2"]
    assert main(["train", *options, "--output", str(run)]) == 0
    assert "training a tokenizer" not in capsys.readouterr().out
    assert (run / "tokenizer.model").read_bytes() == model.read_bytes()
    assert Run.open(run).config.model.vocab_size == 500


# --- translate ---------------------------------------------------------------------------


def test_translate_keeps_lines_and_their_order_without_noise(trained_run, n_best):
    known = trained_run.lines("train.en")[:12]
    long = " ".join(known * 20)[:10_000]
    lines = [*known[:6], "", "   ", known[6], "line\u2028separator", long, "", *known[7:], ""]
    assert len(long) == 10_000
    command = [*TF_TRANSFORMER, "translate", str(trained_run.path)]
    done = run_command(
        [*command, "--beam", "3", "--alpha", "0.8"], "".join(f"{x}\n" for x in lines).encode()
    )
    assert (done.returncode, done.stderr) == (0, b"")
    stdout = done.stdout.decode()
    assert stdout.endswith("\n")
    assert stdout.split("\n")[:-1] == [found[0].text for found in n_best.translate(lines)]


def test_n_best_prints_number_score_and_text(trained_run, n_best, tmp_path, capsys):
    lines = [trained_run.lines("train.en")[0], "", trained_run.lines("train.en")[1]]
    file = tmp_path / "in.txt"
    file.write_bytes("\r\n".join(lines).encode())  # as other systems write it, no last line end
    with stdin_of(file):
        decoding = ["--beam", "3", "--alpha", "0.8", "--n-best", "2"]
        assert main(["translate", str(trained_run.path), *decoding]) == 0
    rows = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert [number for number, _, _ in rows] == ["1", "1", "2", "2", "3", "3"]
    expected = [hypothesis for found in n_best.translate(lines) for hypothesis in found]
    assert [text for _, _, text in rows] == [hypothesis.text for hypothesis in expected]
    assert all(re.fullmatch(r"-?\d+\.\d{4}", score) for _, score, _ in rows)
    assert [float(score) for _, score, _ in rows] == pytest.approx(
        [hypothesis.score for hypothesis in expected], abs=2e-4
    )


def test_alpha_and_beam_change_the_search(trained_run, tmp_path, capsys):
    file = trained_run.corpus / "dev.en"
    outputs = []
    for decoding in (["--beam", "1"], ["--beam", "4", "--alpha", "4"]):
        with stdin_of(file):
            assert main(["translate", str(trained_run.path), *decoding]) == 0
        outputs.append(capsys.readouterr().out)
    greedy, long = outputs
    assert len(greedy.splitlines()) == len(long.splitlines()) == 40
    assert len(greedy) < len(long)  # a strong length penalty favours long translations


def test_a_reader_that_leaves_early_sees_no_traceback(trained_run):
    references = str(trained_run.corpus / "dev.de")
    command = [*TF_TRANSFORMER, "evaluate", "--hypothesis", references, "--reference", references]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment()
    ) as process:
        process.stdout.close()  # as `| head -1` does, before anything is printed
        assert process.stderr.read() == b""
    assert process.returncode == 0


# --- evaluate, score, curves -------------------------------------------------------------


def test_evaluate_prints_the_bleu_of_the_translations_it_writes(trained_run, tmp_path, capsys):
    source, reference = (str(trained_run.corpus / f"dev.{language}") for language in ("en", "de"))
    output = tmp_path / "out" / "dev.hyp"
    run = ["evaluate", str(trained_run.path), "--source", source, "--reference", reference]
    assert main([*run, "--output", str(output)]) == 0
    printed = capsys.readouterr().out
    translations, references = output.read_text().splitlines(), trained_run.lines("dev.de")
    bleu = BLEU().corpus_score(translations, [references]).score
    exact = sum(map(str.__eq__, translations, references))
    pattern = rf"BLEU {bleu:.2f}  {SIGNATURE}\nchrF2 [\d.]+  nrefs:1\S+\n"
    assert re.fullmatch(pattern + rf"exact {exact / 40:.1%} \({exact} of 40\)\n", printed)
    # The dev BLEU of training, by other code: `evaluate` measures the best checkpoint.
    assert f"\ndev BLEU {bleu:.2f} " in trained_run.stdout

    given = ["evaluate", "--hypothesis", str(output), "--reference", reference]
    assert main(given) == 0
    assert capsys.readouterr().out == printed
    assert main([*given, "--lowercase", "--tokenize", "char"]) == 0
    assert "|case:lc|eff:no|tok:char|" in capsys.readouterr().out


def test_score_equals_what_the_search_reports(trained_run, n_best, tmp_path, capsys):
    sources = trained_run.lines("train.en")[:30]
    found = [hypothesis for row in n_best.translate(sources) for hypothesis in row]
    files = {"source": [s for s in sources for _ in range(2)], "target": [h.text for h in found]}
    arguments = []
    for name, lines in files.items():
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines), "utf-8")
        arguments += [f"--{name}", str(tmp_path / name)]
    assert main(["score", str(trained_run.path), *arguments, "--alpha", "0.8"]) == 0
    rows = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert len(rows) == len(found)
    # The search may spell a text in other pieces than the tokenizer; what it reports is then
    # the probability of those.
    pairs = [(row, h) for row, h in zip(rows, found, strict=True) if int(row[2]) == h.num_tokens]
    assert len(pairs) > len(found) / 2
    for (log_prob, score, _), hypothesis in pairs:
        assert float(log_prob) == pytest.approx(hypothesis.log_prob, abs=1e-4)
        assert float(score) == pytest.approx(hypothesis.score, abs=1e-4)


def test_curves_draws_a_picture_of_several_runs(trained_run, copied, tmp_path, capsys):
    pytest.importorskip("matplotlib")
    picture = tmp_path / "new" / "curves.png"
    runs = [str(trained_run.path), str(copied)]
    assert main(["curves", *runs, "--output", str(picture)]) == 0
    assert picture.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    assert capsys.readouterr().out == f"{picture}\n"


# --- export.py ---------------------------------------------------------------------------

# All that a server has: TensorFlow, the operations of SentencePiece, and the folder.
CLIENT = """
import json, sys
import tensorflow_text
from tensorflow import constant, saved_model
serve = saved_model.load(sys.argv[1]).signatures["serving_default"]
answer = serve(text=constant(json.load(sys.stdin)))
translations = [text.decode() for text in answer["translation"].numpy()]
json.dump([translations, answer["score"].numpy().tolist()], sys.stdout)
"""


def export(monkeypatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["export.py", *arguments])
    with pytest.raises(SystemExit) as stopped:
        runpy.run_path(str(ROOT / "export.py"), run_name="__main__")
    return stopped.value.code


def test_an_exported_model_translates_on_its_own(
    trained_run: TrainedRun, n_best, tmp_path, monkeypatch, capsys
):
    models = tmp_path / "models"
    options = ["--output", str(models), "--beam", "3", "--alpha", "0.8"]
    for version in (1, 2):
        assert export(monkeypatch, str(trained_run.path), *options) == 0
        assert re.fullmatch(
            rf"exported {models}/{version} \(\d+\.\d MB\), signature serving_default\n",
            capsys.readouterr().out,
        )
    assert sorted(path.name for path in models.iterdir()) == ["1", "2"]

    texts = [*trained_run.lines("train.en")[:10], "", "中文 🙂"]
    client = [sys.executable, "-c", CLIENT, str(models / "2")]
    done = run_command(client, json.dumps(texts).encode(), cwd=tmp_path)
    translations, scores = json.loads(done.stdout)
    expected = [found[0] for found in n_best.translate(texts)]
    assert translations == [hypothesis.text for hypothesis in expected]
    assert scores == pytest.approx([hypothesis.score for hypothesis in expected], abs=1e-4)
