"""Training on corpora in several formats, with tags."""

import gzip
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from command_line import assert_refused, run_here, translated
from helpers import bits_of

from tf_transformer.data import builtin
from tf_transformer.data.encoded_corpus import EncodedCorpus
from tf_transformer.data.text import SIDES
from tf_transformer.data.tokenizer import Tokenizer
from tf_transformer.export.signatures import Signatures
from tf_transformer.loading.load import load
from tf_transformer.loading.translators import load_translator
from tf_transformer.run import Run
from tf_transformer.run.checkpoints import CheckpointFolder
from tools.storm.lab import SMALLEST, set_options, stdin_of

STEPS = 8
SETTINGS = (
    *SMALLEST, "model.vocab_size=380", "model.tie_embeddings=false",
    "data.separate_vocabularies=true", "data.subword_sampling=0.1", "data.join=0.5",
    "data.caps=0.3", "data.slots=0.6", "training.batch_tokens=256",
    f"training.steps={STEPS}", f"training.evaluate_every={STEPS}",
)  # fmt: skip


@pytest.fixture(scope="module")
def options(tmp_path_factory) -> list[str]:
    """160 pairs in a table and 40 in two files, weighted the other way round, with tags."""
    folder, pairs = tmp_path_factory.mktemp("corpora"), builtin.pairs(220)
    table = "".join(f"{english}\t{german}\n" for english, german in pairs[:160])
    (folder / "one.tsv.gz").write_bytes(gzip.compress(table.encode()))
    for name, part in (("two", pairs[160:200]), ("dev", pairs[200:])):
        for language, lines in zip(builtin.LANGUAGES, zip(*part, strict=True), strict=True):
            (folder / f"{name}.{language}").write_text("\n".join(lines) + "\n", "utf-8")
    words = ["--train", str(folder / "one.tsv.gz"), "--train", str(folder / "two")]
    words += ["--valid", str(folder / "dev"), "--source", "en", "--target", "de"]
    words += ["--mix", "1:4", "--tag", "de=<2de>", "--tag", "two=<made>"]
    return words + set_options(*SETTINGS)


@pytest.fixture(scope="module")
def run(options, tmp_path_factory) -> Run:
    path = tmp_path_factory.mktemp("trained") / "run"
    done = run_here(["train", *options, "--output", str(path)])
    assert done.returncode == 0, done.stderr
    assert "mix: " in done.stdout and "one.tsv.gz 20.0%" in done.stdout
    return Run.open(path)


def last_state(run: Path) -> dict[str, str]:
    return bits_of(CheckpointFolder(run / "checkpoints").state_path(STEPS))


def test_a_run_on_mixed_corpora_resumes_bit_for_bit(options, run, tmp_path):
    parts = ["train", *options, "--output", str(tmp_path / "run"), "--stop-after", "5 steps"]
    for step in (5, 8):
        done = run_here(parts)
        assert (done.returncode, done.stderr) == (0, "")
        if step == 5:
            stopped = "stopped at step 5 by `stop_after` (5 steps); run the same command again"
            assert done.stdout.splitlines()[-1].startswith(stopped)
    assert "resuming from step 5" in done.stdout
    assert last_state(tmp_path / "run") == last_state(run.path)


def test_every_training_source_has_its_tags(run):
    tokenizer = Tokenizer(run.tokenizer)
    corpus = EncodedCorpus.open(run.data / "train")
    rows = 0, len(corpus) - 1
    first, last = (tokenizer.pieces(corpus.source(row)).numpy() for row in rows)
    assert first[0] == last[0] == "\u2581<2de>".encode()
    assert last[1] == "\u2581<made>".encode() != first[1]
    assert corpus.sizes == [160, 40]


def test_the_forms_of_each_pair_are_encoded_beside_the_text(run):
    tokenizer = Tokenizer(run.tokenizer)
    forms = EncodedCorpus.open(run.data / "train-forms")
    assert len(forms) == 4 * 200
    plain, capitals = (tokenizer.pieces(forms.source(row)).numpy() for row in (0, 200))
    assert plain[0] == capitals[0] == "\u2581<2de>".encode()
    (german,) = tokenizer.texts([forms.target(200)])
    assert german == builtin.pairs(1)[0][1].upper()
    assert run.longest_source > forms.source_lengths.max()  # joined


def test_each_language_has_its_own_vocabulary(run):
    tokenizer = Tokenizer(run.tokenizer)
    corpus, ids = EncodedCorpus.open(run.data / "train"), tf.range(380)
    english, german = (tokenizer.pieces(ids, side).numpy().tolist() for side in SIDES)
    assert "ü".encode() in set(german) - set(english)
    (pair, *_) = builtin.pairs(1)
    target = tokenizer.detokenize(tf.constant([corpus.target(0)]))
    assert target.numpy()[0].decode() == pair[1]


def test_a_run_with_slots_keeps_spans_and_terms(run, tmp_path, capsys):
    (tmp_path / "terms.tsv").write_text("tree\tWALNUSS\n")
    (tmp_path / "in.en").write_text("A tree 4711 at a@b.de\nNo span.\n<b>A</b> tree\n")
    options = ("--tag", "<2de>", "--beam", "1", "--glossary", str(tmp_path / "terms.tsv"))
    done = translated(capsys, run.path, tmp_path / "in.en", *options)
    kept = [["WALNUSS", "4711", "a@b.de"], [], ["<b>", "</b>", "WALNUSS"]]
    for line, spans in zip(done, kept, strict=True):
        assert all(line.count(span) == 1 for span in spans) and "<1>" not in line
    starts, spans = (np.load(run.data / f"train-slots/{n}.npy") for n in ("starts", "spans"))
    assert len(starts) == 801 and starts[-1] == len(spans) > 800


def test_settings_that_contradict_the_corpora_are_refused(options, capsys):
    command = ["train", *options, "--output", "run"]
    tied = [*command, "--set", "model.tie_embeddings=true"]
    assert_refused(capsys, tied, "set `model.tie_embeddings=false`", status=1)
    mixed = ["1:4:1" if word == "1:4" else word for word in command]
    expected = "one for each of the 2 of `data.train`. Received: '1:4:1'"
    assert_refused(capsys, mixed, expected, status=1)


def test_a_tag_can_be_an_option_or_part_of_the_line(run, tmp_path, capsys):
    text, tagged = tmp_path / "text", tmp_path / "tagged"
    text.write_text("A dog runs.\n\nWe eat bread.\n", "utf-8")
    tagged.write_text("<2de> A dog runs.\n\n<2de> We eat bread.\n", "utf-8")
    options = ["--alignments", str(tmp_path / "pairs")]
    by_option = translated(capsys, run.path, text, "--tag", "<2de>", *options)
    assert by_option == translated(capsys, run.path, tagged)
    assert by_option[1] == "" and by_option[0]
    pairs = (tmp_path / "pairs").read_text().split()
    assert {pair.split("-")[0] for pair in pairs} <= {"0", "1", "2"}


def test_a_run_trained_only_with_tags_warns_about_a_missing_tag(run, tmp_path):
    (tmp_path / "text").write_text("A dog runs.\n", "utf-8")
    with stdin_of(tmp_path / "text"):
        done = run_here(["translate", str(run.path)])
    assert "trained only on sources that begin with a tag" in done.stderr
    assert "begin each line with one of <2de>, <made>" in done.stderr


def test_tune_uses_the_tags_of_the_dev_text(run, options, tmp_path):
    own = ["tune", str(run.path), "--alpha", "0.6", "--checkpoint", "best"]
    done = run_here(own)
    assert done.returncode == 0 and "begin with a tag" not in done.stderr, done.stderr
    dev = options[options.index("--valid") + 1]
    files = ["--source", f"{dev}.en", "--reference", f"{dev}.de", "--tag", "<2de>"]
    assert run_here([*own, *files]).stdout == done.stdout


def test_tune_refuses_a_tag_for_the_dev_text_of_the_run(run, capsys):
    words = ["tune", str(run.path), "--tag", "<2de>"]
    assert_refused(capsys, words, "the dev text of a run has its tags already", status=1)


def test_alignments_do_not_count_the_tag(run):
    texts, targets = ["A dog runs."], ["Ein Hund rennt."]
    plain, tagged = (load_translator(run, None, tag=tag) for tag in ("", "<2de>"))
    (literal,) = plain.align([f"<2de> {texts[0]}"], targets)
    (found,) = tagged.align(texts, targets)
    assert found.pairs == [(source - 1, target) for source, target in literal.pairs if source]


def test_an_export_puts_its_tag_before_each_text(run):
    tagged = load(run.path, tag="<2de> <made>")
    served = Signatures(tagged.engine, tagged.decoding).functions()["serving_default"]
    expected = load_translator(run, None).translate(["<2de> <made> A dog runs.", ""])
    texts = served(tf.constant(["A dog runs.", ""]))["translation"].numpy()
    assert [text.decode() for text in texts] == expected


@pytest.mark.parametrize("command", ["translate", "export"])
def test_a_tag_unseen_in_training_is_refused(run, command, capsys):
    words = [command, str(run.path), "--tag", "<2de> <2fr>"]
    words += ["--output", "model"] if command == "export" else []
    expected = r"trained with: <2de>, <made>. Received: '<2fr>'"
    assert_refused(capsys, words, expected, status=1)
