"""A classifier learns labels from its words, or from a translator's encoder on."""

import io
import random
from types import SimpleNamespace

import numpy as np
import pytest

import tf_transformer
from experiments.classification.__main__ import main
from experiments.classification.classifier import (
    EOS_ID,
    MAX_LENGTH,
    Classifier,
    Settings,
    batches,
    batches_of,
    new_model,
    padded,
    train,
)
from experiments.classification.labelled import Example
from experiments.common import run

pytestmark = pytest.mark.slow

# Enough to find the word that determines the label in most sentences.
SMALL = Settings(
    layers=1, d_model=32, d_ff=32, heads=2, vocab_size=300, dropout=0.0, subword_sampling=0.0,
    steps=60, batch_tokens=512, warmup=10, rate_scale=0.2, evaluate_every=30,
)  # fmt: skip
WORDS = {
    "animal": ["cat", "dog", "bird", "fish"],
    "colour": ["red", "blue", "green", "white"],
    "number": ["one", "two", "three", "four"],
}
_FILL = ["the", "a", "of", "is", "very", "was", "here", "there", "we", "saw"]


def toy_labels(size: int, seed: int) -> list[str]:
    """Lines of a label, a TAB and up to ten words, one of which is of the label."""
    rng = random.Random(seed)
    lines = []
    for _ in range(size):
        label = rng.choice(sorted(WORDS))
        words = rng.choices(_FILL, k=rng.randrange(1, 10))
        words.insert(rng.randrange(len(words) + 1), rng.choice(WORDS[label]))
        lines.append(f"{label}\t{' '.join(words)} .")
    return lines


LABELS = sorted(WORDS)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with train.tsv, dev.tsv, and what training prints and writes."""
    folder = tmp_path_factory.mktemp("classifier")
    for name, size, seed in (("train", 300, 1), ("dev", 40, 2)):
        lines = "".join(f"{line}\n" for line in toy_labels(size, seed))
        (folder / f"{name}.tsv").write_text(lines, "utf-8")
    return folder


@pytest.fixture(scope="module")
def trained(folder) -> Classifier:
    data = [folder / "train.tsv"], [folder / "dev.tsv"]
    return train(*data, folder / "topics", SMALL)


def examples_of(path) -> list[Example]:
    rows = [line.split("\t") for line in path.read_text("utf-8").splitlines()]
    return [Example(sentence, label) for label, sentence in rows]


def test_training_finds_the_words_that_tell_the_label(folder, trained):
    scores = trained.evaluate(examples_of(folder / "dev.tsv"))
    assert scores.accuracy > 0.7 and scores.macro_f1 > 0.6
    (first,) = trained.classify(["we saw the cat ."])
    assert next(iter(first)) == "animal"
    assert [*first] == sorted(first, key=first.get, reverse=True) and {*first} == {*LABELS}
    assert sum(first.values()) == pytest.approx(1, abs=1e-5)


def test_a_saved_classifier_is_loaded_unchanged(folder, trained):
    loaded = Classifier.load(folder / "topics")
    texts = ["we saw the cat .", "", "the cat " * 300, "red"]
    expected = trained.probabilities(texts)
    np.testing.assert_allclose(loaded.probabilities(texts), expected, atol=1e-6)
    assert loaded.labels == LABELS


def test_neither_padding_nor_the_other_sentences_change_an_answer(trained):
    texts = ["a cat .", "the cat is very red " * 20, "two"]
    together = trained.probabilities(texts)
    alone = np.concatenate([trained.probabilities([text]) for text in texts])
    np.testing.assert_allclose(together, alone, atol=1e-6)


def test_the_best_weights_are_kept_and_not_the_last(folder, tmp_path, capsys):
    wild = Settings(**{**vars(SMALL), "rate_scale": 30.0, "evaluate_every": 10})
    data = [folder / "train.tsv"], [folder / "dev.tsv"]
    classifier = train(*data, tmp_path / "wild", wild)
    lines = [line for line in capsys.readouterr().out.splitlines() if " dev accuracy " in line]
    assert len(lines) == 7 and lines[-1].startswith("average of the last 5")
    best = [line for line in lines if line.endswith("best")][-1]
    now = classifier.evaluate(examples_of(folder / "dev.tsv"))
    assert f"dev {now.summary()}" in best


def test_the_commands_label_and_score(folder, trained, capsys, monkeypatch):
    path = str(folder / "topics")
    text = "we saw the cat .\n \nthe very red a .\n"
    for options, expected in (
        ([], ["animal", "", "colour"]),
        (["--n-best", "1"], ["animal\t0", "", "colour\t0"]),
    ):
        monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(text.encode())))
        assert run(main, ["classify", path, *options]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert [line.partition(".")[0] for line in lines] == expected
    assert run(main, ["evaluate", path, str(folder / "dev.tsv")]) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert last == trained.evaluate(examples_of(folder / "dev.tsv")).summary()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("classify nowhere", "nowhere must be the --output of a training"),
        ("train --train t.tsv --valid t.tsv --output new", "t.tsv:1: expected a label, a TAB"),
        ("train --train t.tsv --valid t.tsv --output new --freeze", "--freeze is for an enc"),
    ],
)
def test_bad_input_is_refused_in_one_line(tmp_path, capsys, words, expected):
    (tmp_path / "t.tsv").write_text("no tab\n")
    assert run(main, words.split()) == 1
    stderr = capsys.readouterr().err
    assert stderr.startswith("error: ") and stderr.count("\n") == 1 and expected in stderr


def test_a_classifier_is_not_overwritten(folder, trained):
    data = [folder / "train.tsv"], [folder / "dev.tsv"]
    with pytest.raises(tf_transformer.UserError, match="has a classifier already"):
        train(*data, folder / "topics", SMALL)


# --- The encoder of a run ----------------------------------------------------------------


@pytest.mark.parametrize("freeze", [False, True])
def test_a_translators_encoder_is_taken_over_with_another_dropout(trained_run, freeze):
    translator = tf_transformer.load(trained_run.path)
    theirs = translator.encoder
    settings = Settings(dropout=0.4)
    model = new_model(translator.tokenizer.vocab_size, 3, settings, theirs, freeze=freeze)
    for mine, other in zip(model.get_weights()[:-2], theirs.get_weights(), strict=True):
        np.testing.assert_array_equal(mine, other)
    assert model.get_layer("encoder").dropout.rate == 0.4
    assert len(model.trainable_weights) == (2 if freeze else len(model.weights))
    # The rest of the model is the mean of what the translator's encoder computes.
    ids = np.array([[5, 9, 7, EOS_ID]], np.int32)
    kernel, bias = model.get_weights()[-2:]
    expected = theirs(ids).numpy().mean(axis=1) @ kernel + bias
    np.testing.assert_allclose(model(ids), expected, atol=1e-5)


def test_training_begins_with_a_run(folder, trained_run, tmp_path, capsys):
    command = ["train", "--train", str(folder / "train.tsv"), "--valid"]
    command += [str(folder / "dev.tsv"), "--output", str(tmp_path / "fine"), "--freeze"]
    command += ["--init-from", str(trained_run.path), "--steps", "2", "--evaluate-every", "2"]
    assert run(main, command) == 0
    fine = Classifier.load(tmp_path / "fine")
    translator = tf_transformer.load(trained_run.path)
    assert fine.tokenizer.model_bytes == translator.tokenizer.model_bytes
    for mine, other in zip(
        fine.model.get_weights()[:-2], translator.encoder.get_weights(), strict=True
    ):
        np.testing.assert_array_equal(mine, other)


# --- Batches -----------------------------------------------------------------------------


def test_an_epoch_has_each_sentence_once_in_few_padded_positions(trained, folder):
    examples = examples_of(folder / "train.tsv")
    settings = Settings(**{**vars(SMALL), "batch_tokens": 128})
    seen, positions = [], 0
    for source, targets in batches(examples, trained, settings).as_numpy_iterator():
        positions += source.size
        assert source.size <= 128 and source.shape[0] == targets.shape[0]
        rows = [ids[ids != 0][:-1].tolist() for ids in source]
        assert all(ids[ids != 0][-1] == EOS_ID for ids in source)
        seen += zip(map(tuple, rows), np.argmax(targets, 1).tolist(), strict=True)
        if len(seen) == len(examples):
            break
    ids = trained.tokenizer.ids([example.sentence for example in examples])
    numbers = [LABELS.index(example.label) for example in examples]
    assert sorted(seen) == sorted(zip(map(tuple, ids), numbers, strict=True))
    assert positions < 1.25 * sum(len(row) + 1 for row in ids)


def test_subwords_are_drawn_anew_and_spell_the_same_sentences(trained):
    examples = [Example("we saw the very red one", "colour"), Example("cat", "animal")]
    settings = Settings(**{**vars(SMALL), "subword_sampling": 0.5})
    spelt = set()
    for source, _ in batches(examples, trained, settings).take(40).as_numpy_iterator():
        texts = trained.tokenizer.detokenize(source).numpy().tolist()
        assert {text.decode() for text in texts} <= {one.sentence for one in examples}
        spelt |= {tuple(row.tolist()) for row in source}
    assert len(spelt) > 20


def test_a_long_sentence_is_cut(trained):
    examples = [Example("the cat " * 300, "animal")]
    ((source, _),) = batches(examples, trained, SMALL).take(1).as_numpy_iterator()
    assert source.shape == (1, MAX_LENGTH) and source[0, -1] == EOS_ID


def test_rows_are_grouped_within_a_number_of_positions():
    lengths = [9, 2, 30, 2, 5]
    groups = batches_of(lengths, 24)
    assert sorted(np.concatenate(groups).tolist()) == [0, 1, 2, 3, 4]
    assert [group.tolist() for group in groups] == [[1, 3, 4], [0], [2]]
    assert padded([[1], [2, 3]]).tolist() == [[1, 0], [2, 3]]
