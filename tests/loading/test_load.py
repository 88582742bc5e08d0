"""`load`: what it returns for a path, and how the result treats a string and a list."""

import ast
import json
import shutil
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf
from trained import small_model

import tf_transformer
from tf_transformer import load
from tf_transformer.base.errors import UserError
from tf_transformer.cli.main import main
from tf_transformer.decoding.interface import Translation
from tf_transformer.export.saved_model import ExportEngine
from tf_transformer.models.losses import LabelSmoothedCrossEntropy, Perplexity
from tf_transformer.models.transformer import Transformer
from tf_transformer.run import Run


@pytest.fixture(scope="module")
def translator(trained_run):
    return load(trained_run.path)


@pytest.fixture(scope="module")
def of_export(exported):
    return load(exported.parent)


@pytest.fixture(scope="module")
def texts(trained_run) -> list[str]:
    first, second, third = trained_run.lines("dev.en")[:3]
    return [first, "", second, third]


# --- Translations ------------------------------------------------------------------------


def test_one_string_gives_one_translation_and_a_list_gives_a_list(translator, texts):
    together = translator.translate(texts)
    alone = translator.translate(texts[0])
    assert isinstance(alone, Translation) and alone == together[0]
    several = translator.translate(texts, n_best=3)
    assert [ranked[0] for ranked in several] == together
    assert [len(ranked) for ranked in several] == [3, 1, 3, 3]  # only one for blank text
    assert translator.translate(texts[0], n_best=1)[0] == alone
    assert translator.translate([]) == []


def test_options_are_those_of_the_command(translator, texts):
    short = translator.translate(texts[0], max_length=4, beam_size=2)
    assert len(str(short).split()) <= 3 < len(str(translator.translate(texts[0])).split())
    assert str(translator.translate(texts[0], prefix="Am Montag")).startswith("Am Montag")
    drawn = [
        translator.translate(texts[0], sample=True, seed=seed, temperature=1.5, n_best=6)
        for seed in (7, 7, 8)
    ]
    assert drawn[0] == drawn[1] != drawn[2] and len(drawn[0]) == 6


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"beam": 3}, "no option 'beam'. Did you mean 'beam_size'"),
        ({"batch_size": 3}, "no option 'batch_size'. Did you mean 'batch_tokens'"),
        ({"chess": 3}, "no option 'chess'. There are: n_best, prefix, sample, "),
        ({"beam_size": 0}, "`beam_size` must be an int from 1 to 1000. Received: 0"),
        ({"n_best": 5}, "`n_best` must be between 1 and the beam size, 4. Received: 5"),
        ({"n_best": 0}, "`n_best` must be between 1 and the beam size, 4. Received: 0"),
        ({"n_best": "2"}, "`n_best` must be int. Received: '2'"),
        ({"top_p": 0.9}, "`top_p` needs `sample=True`"),
        ({"sample": True, "alpha": 1.0}, "`sample=True` excludes `alpha`: it does"),
        ({"sample": True, "lookahead": 6}, "`sample=True` excludes `lookahead`: it"),
    ],
)
def test_a_wrong_option_is_refused(translator, options, message):
    with pytest.raises(UserError, match=message):
        translator.translate("a", **options)


@pytest.mark.parametrize("wrong", [None, b"a", {"text": "a"}, 3, {"a"}, ["a", None], [b"a"]])
def test_values_other_than_text_are_refused(translator, of_export, wrong):
    for loaded in (translator, of_export):
        with pytest.raises(TypeError, match=r"`texts` must be .*list of strings. Received: "):
            loaded.translate(wrong)


def test_mixing_a_string_and_a_list_is_refused(translator):
    with pytest.raises(TypeError, match="`source` and `target` must both be strings, or both"):
        translator.score(["a", "b"], "ab")
    with pytest.raises(TypeError, match="`texts` and `prefix` must both be strings"):
        translator.translate(["a", "b"], prefix="ab")
    with pytest.raises(ValueError, match="the same number of strings. Received: 1 and 2"):
        translator.align(["a"], ["b", "c"])


def test_translations_are_scored_and_evaluated(trained_run, translator, texts, capsys):
    best = translator.translate(texts[0])
    scored = translator.score(texts[0], str(best))
    assert scored.log_prob == pytest.approx(best.log_prob, abs=1e-4)
    assert translator.score(texts[0], str(best), alpha=0).score == scored.log_prob
    files = [str(trained_run.corpus / f"dev.{language}") for language in ("en", "de")]
    arguments = ["--source", files[0], "--reference", files[1]]
    assert main(["evaluate", str(trained_run.path), *arguments]) == 0
    scores = translator.evaluate(*map(trained_run.lines, ("dev.en", "dev.de")))
    assert capsys.readouterr().out.startswith(f"{scores!r}\ncaution  ")  # dev text was seen
    with pytest.raises(TypeError, match="`source` must be a list of strings"):
        translator.evaluate("a", ["b"])
    with pytest.raises(ValueError, match=r"the same number of sentences.* Received: \[1, 2\]"):
        translator.evaluate(["a"], ["b", "c"])
    with pytest.raises(TypeError, match="multiple values for keyword argument 'n_best'"):
        translator.evaluate(["a"], ["b"], n_best=2)


# --- In a notebook -----------------------------------------------------------------------


def test_attention_is_a_picture_and_an_alignment_pairs_of_words(translator, texts):
    pytest.importorskip("matplotlib")
    assert translator.attention(texts[0])._repr_png_().startswith(b"\x89PNG")
    alignment = translator.align(texts[0])
    assert alignment.target == str(translator.translate(texts[0]))
    assert translator.align([texts[0]], [alignment.target]) == [alignment]
    assert str(alignment).split()[0].startswith("0-") or alignment.pairs[0][0] > 0


def test_without_matplotlib_attention_is_a_table(translator, texts, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    attention = translator.attention(texts[0])
    assert attention._repr_png_() is None
    first, header, *rows = repr(attention).splitlines()
    assert first == "Attention of 1 layers, 4 heads:"
    assert header.split() == ["%", *attention.source]
    assert [row.split()[0] for row in rows] == attention.target
    figures = np.array([list(map(float, row.split()[1:])) for row in rows])
    np.testing.assert_allclose(figures.sum(axis=1), 100, atol=len(attention.source) / 2)


def test_several_lines_and_texts_longer_than_in_training_get_a_word(
    translator, of_export, trained_run, texts, caplog
):
    longest = Run.open(trained_run.path).longest_source
    pieces = translator.tokenizer.ids(trained_run.lines("train.en"))
    assert longest == max(map(len, pieces)) + 1
    assert translator.engine.longest_trained == longest
    usual = max(zip(map(len, pieces), trained_run.lines("train.en"), strict=True))[1]
    translator.translate([usual, f"{texts[0]}\n", *texts], max_length=2)
    assert caplog.messages == []
    for each in (translator, of_export):
        each.translate(["One.\nTwo.", texts[0]], max_length=2)
        assert caplog.messages == [
            "texts of several lines, each read as one sentence: 1; `translate_text` takes "
            "documents"
        ]
        caplog.clear()
    translator.translate([usual, f"{usual} {texts[0]}"], max_length=2)
    assert caplog.messages == [f"texts longer than any in training, {longest} tokens: 1"]


# --- Other paths -------------------------------------------------------------------------


def test_an_export_translates_like_its_run(translator, of_export, exported, texts):
    assert isinstance(of_export, tf_transformer.Translator)
    assert isinstance(of_export.engine, ExportEngine) and of_export.engine.path == exported
    for options in ({}, {"alpha": 0.0, "max_length": 6}, {"prefix": ["Am", "", "", "Die"]}):
        expected = translator.translate(texts, n_best=4, **options)
        exported_too = of_export.translate(texts, n_best=4, **options)
        for ranked, others in zip(exported_too, expected, strict=True):
            assert len(ranked) == len(others) and ranked[0] == others[0]
            found, wanted = ([t.score, t.log_prob] for t in (ranked[0], others[0]))
            assert found == pytest.approx(wanted, abs=1e-4)
    assert of_export.translate(texts[0]) == translator.translate(texts[0])
    scored = of_export.score(texts[0], "Guten Morgen.")
    assert scored.log_prob == pytest.approx(
        translator.score(texts[0], "Guten Morgen.").log_prob, abs=1e-4
    )
    assert of_export.score(texts[0], "Guten Morgen.", alpha=0.0).score == scored.log_prob
    for one in of_export.translate(texts[2:], alpha=0.0, max_length=6, word_probs=True):
        assert len(one.word_probs) == len(one.split()) and one.score == one.log_prob
    assert of_export.evaluate(texts[2:], ["a", "b"]).sentences == 2


def test_parts_that_an_export_computes_in_parallel_stay_in_order(of_export, texts, monkeypatch):
    texts, done = texts * 3, []
    expected = of_export.translate(texts)
    monkeypatch.setattr(of_export.engine, "streams", 3)
    parallel = of_export.translate(texts, progress=done.append)
    assert parallel == expected
    assert len(done) == 3 and done[-1] == len(texts)


@pytest.mark.parametrize(
    ("ask", "what"),
    [
        (lambda loaded: loaded.align("a", "b"), "align: load the run"),
        (lambda loaded: loaded.export("elsewhere"), "be exported: load the run"),
        (lambda loaded: loaded.model, "give its model: load the run"),
        (lambda loaded: loaded.translate("a", beam_size=2), "search with another `beam_size`"),
        (lambda loaded: loaded.translate("a", sample=True), "cannot sample: load the run"),
        (lambda loaded: loaded.translate("a", n_best=5), "`n_best` must be between 1 and"),
    ],
)
def test_what_an_export_cannot_do_is_refused_in_one_line(of_export, ask, what):
    with pytest.raises(UserError, match=what) as refused:
        ask(of_export)
    assert "\n" not in str(refused.value)


def test_a_keras_file_uses_the_tokenizer_beside_it(translator, texts, tmp_path):
    translator.model.save(tmp_path / "model.keras")
    with pytest.raises(UserError, match="no tokenizer beside it: .* Give `tokenizer`"):
        load(tmp_path / "model.keras")
    translator.tokenizer.copy(tmp_path / "tokenizer.model")
    for options in ({}, {"tokenizer": tmp_path / "tokenizer.model"}):
        loaded = load(tmp_path / "model.keras", **options)
        assert isinstance(loaded.model, Transformer)
        assert loaded.translate(texts)[2] == translator.translate(texts)[2]


def test_a_lambda_in_a_keras_file_is_not_run(tmp_path):
    layer = keras.layers.Lambda(lambda x: x + 1)
    keras.Sequential([keras.Input((3,)), layer]).save(tmp_path / "model.keras")
    with pytest.raises(UserError, match="Keras can load: .*[lL]ambda"):
        load(tmp_path / "model.keras")


@pytest.mark.parametrize(
    "imports", ["keras, tf_transformer", "tf_transformer, keras; tf_transformer.Transformer"]
)
def test_keras_finds_the_classes_of_a_file_after_an_import_of_the_package(imports, tmp_path):
    model = small_model(20)
    model.compile("adam", LabelSmoothedCrossEntropy(), metrics=[Perplexity()])
    model.save(tmp_path / "model.keras")
    code = (
        f"import {imports}\nprint(keras.saving.load_model('model.keras').loss.label_smoothing)"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.stdout == "0.1\n", done.stderr


def test_a_run_is_exported_with_its_card(translator, texts, tmp_path):
    # Without text, it has one signature to write and test.
    path = translator.export(tmp_path / "mine", alpha=1.0, version=3, text=False)
    assert path == tmp_path / "mine" / "3"
    card = json.loads((path / "assets.extra" / "model_card.json").read_text())
    assert (card["checkpoint"]["name"], card["decoding"]["alpha"]) == ("best", 1.0)
    assert card["evaluation_of_these_weights"]["valid_bleu"] > 20
    expected = translator.translate(texts[0], alpha=1.0)
    with ExportEngine(path) as session:
        ids = translator.tokenizer.tokenize(tf.constant(texts[:1])).to_tensor()
        answer = session.run("tokens", {"tokens": ids.numpy()})
    (text,) = translator.tokenizer.detokenize(tf.constant(answer["tokens"])).numpy()
    assert text.decode() == str(expected)
    assert answer["score"] == pytest.approx([expected.score], abs=1e-4)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"task": "parsing"}, "`task` 'parsing' needs tf-transformer 1.1.0"),
        ({"checkpoint": "first"}, "no checkpoint 'first'. There are: best"),
        ({"checkpoint": 0}, "no checkpoint '0'. There are: best"),
        ({"tokenizer": "x"}, "`tokenizer` is not for a run\\."),
        ({"precision": "float16"}, "`precision` must be one of .* Received: 'float16'"),
        ({"ensemble": ["nowhere"]}, "nowhere is not a run directory"),
    ],
)
def test_options_that_do_not_suit_the_path_are_refused(trained_run, options, message):
    with pytest.raises(UserError, match=message):
        load(trained_run.path, **options)


def test_a_step_may_be_an_int(trained_run, texts):
    by_number, last = (load(trained_run.path, checkpoint=step) for step in (240, "last"))
    assert by_number.score(texts[0], "Gut.") == last.score(texts[0], "Gut.")


def test_other_paths_are_refused(exported, tmp_path):
    with pytest.raises(UserError, match="must be a run directory, an .* no such path"):
        load(tmp_path / "gone")
    with pytest.raises(UserError, match="a folder that is none of them"):
        load(tmp_path)
    with pytest.raises(UserError, match=r"test_load.py must be .* a file that is none of them"):
        load(__file__)
    with pytest.raises(UserError, match=r"Give an export in it, such as .*/small"):
        load(exported.parents[1])
    with pytest.raises(UserError, match="`checkpoint` is not for an export"):
        load(exported, checkpoint="last")
    shutil.copytree(exported, tmp_path / "other" / "1")
    shutil.rmtree(tmp_path / "other" / "1" / "variables")
    with pytest.raises(UserError, match="holds no SavedModel that can be loaded"):
        load(tmp_path / "other")


def test_names_for_type_checkers_are_the_public_ones():
    """Type checkers read one list, Python the other."""
    tree = ast.parse(Path(tf_transformer.__file__).read_text("utf-8"))
    block = next(node for node in tree.body if isinstance(node, ast.If))
    typed = {
        (alias.asname, node.module.removeprefix("tf_transformer."))
        for node in block.body
        for alias in node.names
    }
    modules = {(name, "tf_transformer") for name in tf_transformer._PUBLIC_MODULES}
    assert typed == {*tf_transformer._PUBLIC.items(), *modules}
    assert set(tf_transformer._PUBLIC) <= set(dir(tf_transformer))
