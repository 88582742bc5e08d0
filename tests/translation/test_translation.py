"""The translation task: its data, its batches, its dev score, its tokenizer."""

import json
import re
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from sacrebleu.metrics import BLEU

from tf_transformer.base.errors import UserError
from tf_transformer.cli.main import main
from tf_transformer.cli.options import seen_before
from tf_transformer.config import PAD_ID, Config
from tf_transformer.data.text import corpora
from tf_transformer.loading.translators import load_translator
from tf_transformer.models.transformer import build_model
from tf_transformer.run import Run
from tf_transformer.run.checkpoints import load_weights
from tf_transformer.translation.checks import check_training
from tf_transformer.translation.task import TranslationTask, describe_overlaps, overlaps


def task_of(run: Run, progress: Callable = lambda *_: None) -> TranslationTask:
    return TranslationTask(run, progress)


@pytest.fixture(scope="module")
def task(trained_run) -> TranslationTask:
    return task_of(Run.open(trained_run.path))


# --- Data --------------------------------------------------------------------------------


def test_configured_data_is_used_unchanged(run):
    assert TranslationTask.effective_data(run) == run.config.data


def test_without_data_the_built_in_corpus_is_written_into_the_run(tmp_path):
    data = TranslationTask.effective_data(Run.create_or_resume(tmp_path / "run", Config()))
    (text,) = corpora(data.train, data)
    assert (data.source, data.target) == ("en", "de")
    assert all(tmp_path / "run" in path.parents for path in (text.source, text.target))
    assert len(text) > 10_000
    check_training(Config(data=data))


@pytest.mark.parametrize("missing", ["train", "valid", "source", "target"])
def test_incomplete_data_options_are_refused(run, missing):
    config = run.config.replace(
        {f"data.{missing}": "" if missing in ("source", "target") else ()}
    )
    with pytest.raises(UserError, match="Your own data needs all of") as error:
        check_training(config)
    assert missing not in str(error.value).partition("Received")[2]


@pytest.mark.parametrize("split", ["train", "valid"])
def test_files_of_different_lengths_are_refused(run, tmp_path, split):
    (tmp_path / "uneven.en").write_text("one\ntwo\n")
    (tmp_path / "uneven.de").write_text("eins\n")
    config = run.config.replace({f"data.{split}": (str(tmp_path / "uneven"),)})
    with pytest.raises(UserError, match="uneven.en with 2 and .*uneven.de with 1"):
        check_training(config)


def test_tokenised_text_is_not_tokenised_again(run):
    calls: list[str] = []
    task_of(run, lambda text, done: calls.append(text))
    assert calls == []


def test_text_is_tokenised_again_for_other_filters(run):
    calls: list[tuple[str, int]] = []
    shorter = Run(run.path, run.config.replace({"data.max_length": 24}))
    task = task_of(shorter, lambda text, done: calls.append((text, done)))
    assert calls == [("tokenising train", 300), ("tokenising valid", 40)]
    assert max(task.train.source_lengths.max(), task.train.target_lengths.max()) <= 24
    assert "longer than 24 tokens" in task.describe()


def test_changed_text_is_tokenised_again(run, tmp_path):
    files = [tmp_path / "text.en", tmp_path / "text.de"]
    for file in files:
        file.write_text("".join(f"{number} euros.\n" for number in range(9)))
    prefix = (str(tmp_path / "text"),)
    settings = {"data.train": prefix, "data.valid": prefix}
    other = Run(run.path, run.config.replace(settings))
    assert len(task_of(other).train) == 9
    for file in files:
        file.write_text(f"{file.read_text()}Ten euros.\n")
    assert len(task_of(other).train) == 10


def test_the_description_accounts_for_every_pair(task):
    lines = task.describe().splitlines()
    assert lines[0] == "train: 300 pairs read, 300 kept"
    assert lines[1] == "valid: 40 pairs read, 40 kept"
    assert any(line.startswith("padding: ") for line in lines)


def rows(labels: np.ndarray) -> list[tuple[int, ...]]:
    """The rows without padding; empty ones are left out."""
    unpadded = (tuple(row[row != PAD_ID].tolist()) for row in labels)
    return [row for row in unpadded if row]


def test_validation_sees_every_dev_pair_once(task, trained_run):
    dataset = task.validation_data()
    labels = [row for _, batch in dataset.as_numpy_iterator() for row in rows(batch)]
    expected = [tuple(task.valid.target(index).tolist()) for index in range(len(task.valid))]
    assert Counter(labels) == Counter(expected)
    assert len(labels) == 40
    assert int(dataset.cardinality()) == task.valid_plan.steps_per_epoch


def test_training_data_can_start_at_any_step(task):
    steps = task.plan.steps_per_epoch + 2  # into the second epoch
    whole = task.training_data(0).take(steps + 3).as_numpy_iterator()
    rest = task.training_data(steps).take(3).as_numpy_iterator()
    for (inputs, labels), (same_inputs, same_labels) in zip(
        list(whole)[steps:], rest, strict=True
    ):
        np.testing.assert_array_equal(labels, same_labels)
        for name in ("source", "target"):
            np.testing.assert_array_equal(inputs[name], same_inputs[name])


# --- Dev score ---------------------------------------------------------------------------


def test_the_dev_score_is_bleu_of_the_checkpoint(task, trained_run):
    model = build_model(task.run.config)
    load_weights(task.run.checkpoints.best, model)
    result = task.evaluator(model)()
    references = trained_run.lines("dev.de")
    translator = load_translator(task.run, "best")
    texts = translator.translate(trained_run.lines("dev.en"))
    assert result.metrics["bleu"] == BLEU().corpus_score(texts, [references]).score
    assert result.metrics["exact"] == np.mean(
        [t == r for t, r in zip(texts, references, strict=True)]
    )
    sources = trained_run.lines("dev.en")[:5]
    assert result.lines[:-2] == [
        f"\n  source     {source}\n  reference  {reference}\n  model      {text}"
        for source, reference, text in zip(sources, references, texts, strict=False)
    ]


def counts(sources: int, references: int) -> dict[str, int]:
    return {"sources": sources, "references": references}


def test_each_side_is_looked_up_in_the_text_of_its_language(trained_run):
    run = Run.open(trained_run.path)  # the dev text is the first 40 pairs of 300
    sources, targets = trained_run.lines("train.en"), trained_run.lines("train.de")
    new = "Seven zebras zigzag through a quiet zoo."
    cases = [
        ([sources[100], new, sources[200]], [new, new, targets[200]], (2, 1), (0, 0)),
        ([sources[3], sources[100]], [targets[4], new], (2, 1), (1, 1)),
        ([new, "", targets[100]], ["", new, sources[100]], (0, 0), (0, 0)),
    ]
    for lines, references, in_train, in_valid in cases:
        expected = {"train": counts(*in_train), "valid": counts(*in_valid)}
        assert overlaps(run, lines, [references]) == expected


def test_a_line_counts_once_even_with_several_references(trained_run):
    run, targets = Run.open(trained_run.path), trained_run.lines("train.de")
    references = [[targets[50], "x"], [targets[60], "y"], ["z", targets[70]]]
    assert overlaps(run, ["a", "b"], references)["train"] == counts(0, 2)


def test_only_texts_with_an_overlap_are_named():
    assert describe_overlaps({"train": counts(0, 2), "valid": counts(0, 0)}, 1000) == (
        "of 1,000 lines, 0 sources and 2 references are in the training text"
    )
    assert describe_overlaps({"train": counts(0, 0), "valid": counts(0, 0)}, 7) == ""


@pytest.fixture
def folder(trained_run, tmp_path) -> Path:
    """The current folder: a copy of the run, and five dev pairs as a "test" set."""
    shutil.copytree(trained_run.path, "run")
    for language in ("en", "de"):
        lines = trained_run.lines(f"dev.{language}")[:5]
        Path(f"test.{language}").write_text("".join(f"{line}\n" for line in lines), "utf-8")
    return tmp_path


def test_a_result_is_recorded_with_the_number_of_seen_lines(folder, capsys):
    command = ["evaluate", "run", "--source", "test.en", "--reference", "test.de"]
    assert main([*command, "--record", "--beam", "1"]) == 0
    printed = capsys.readouterr().out
    assert "caution  run has seen these lines: of 5 lines, 5 sources and 5 ref" in printed
    (record,) = map(json.loads, Path("run/results.jsonl").read_text().splitlines())
    everything = {"sources": 5, "references": 5}
    assert record["seen"] == {"run": {"train": everything, "valid": everything}}
    score = record["scores"]["BLEU"]
    assert printed.startswith(f"BLEU {score['value']:.2f}  {score['signature']}")
    assert main(["card", "run"]) == 0
    row = f"| test.en, test.de | 5 | BLEU {score['value']:.2f} "
    printed = re.sub(" +", " ", capsys.readouterr().out)
    (line,) = [line for line in printed.splitlines() if line.startswith(row)]
    assert line.endswith("| best, beam 1, alpha 0.6 | 5, 5 |")


def test_missing_text_is_reported_as_unchecked(folder, capsys):
    shutil.rmtree("run/data/valid")
    with pytest.raises(UserError):
        overlaps(Run.open("run"), ["a"], [["b"]])
    assert main(["score", "run", "--source", "test.en", "--target", "test.de"]) == 0
    printed = capsys.readouterr()
    assert printed.out.count("\n") == 5
    expected = "caution  run may have seen these lines; not checked: run/data/valid"
    assert expected in printed.err


def test_an_export_is_reported_as_unchecked(exported, caplog):
    assert seen_before([str(exported)], ["A cat ."], [["Eine Katze ."]]) == {
        str(exported): None
    }
    assert "may have seen these lines; not checked: an export" in caplog.text


@pytest.mark.parametrize(
    ("dev", "expected"), [("猫夜里画那棵树。", "zh"), ("Die Katze.", "13a")]
)
def test_the_dev_text_settles_the_tokenizer_of_bleu(tmp_path, dev, expected):
    (tmp_path / "dev.en").write_text("The cat.\n", "utf-8")
    (tmp_path / "dev.xx").write_text(f"{dev}\n", "utf-8")
    data = {"data.valid": (str(tmp_path / "dev"),), "data.source": "en", "data.target": "xx"}
    settled = TranslationTask.settled(Config().replace(data))
    assert settled.data.bleu_tokenizer == expected
    assert TranslationTask.settled(Config()) == Config()  # the built-in corpus
