"""Translations, parses and labels are strings that carry figures."""

import copy
import json
import pickle

import pytest
import sacrebleu
import tensorflow as tf

from tf_transformer.decoding.text_codec import Translation
from tf_transformer.tasks.classification.predictor import Label
from tf_transformer.tasks.parsing.linearisation import Parse
from tf_transformer.tasks.parsing.trees import Tree

HELLO = Translation("Hallo Welt.", -0.5, -1.25, 4)
TREE = Tree("TOP", (Tree("NN", (), "dog"),))
TEXTS = {
    "Hallo Welt.": HELLO,
    "(TOP (NN dog))": Parse(TREE, 1, cut=True),
    "animal": Label("animal", {"animal": 0.75, "number": 0.25}),
}


@pytest.mark.parametrize("text", TEXTS)
def test_it_is_used_as_the_text(text):
    found = TEXTS[text]
    assert isinstance(found, str) and found == text and hash(found) == hash(text)
    assert found in [text] and text in {found} and text[1:3] in found
    assert "\n".join([found, found]) == f"{found}\n{text}" and repr(found) == repr(text)
    assert json.loads(json.dumps([found])) == [text]
    assert type(str(found)) is str
    assert tf.constant([found]).numpy().tolist() == [text.encode()]


@pytest.mark.parametrize("text", TEXTS)
def test_copies_keep_text_and_figures(text):
    found = TEXTS[text]
    for other in (copy.copy(found), copy.deepcopy(found), pickle.loads(pickle.dumps(found))):
        assert other == found and type(other) is type(found) and vars(other) == vars(found)


def test_sacrebleu_scores_translations():
    found, text = Translation("Ein Hund rennt.", 0, 0, 5), "Ein Hund rennt."
    assert sacrebleu.corpus_bleu([found], [[text]]).score == pytest.approx(100)


def test_pandas_takes_them_as_strings():
    pandas = pytest.importorskip("pandas")
    assert pandas.Series([HELLO]).str.len().tolist() == [11]


def test_a_blank_sentence_has_a_blank_parse():
    assert Parse(None, 0) == "" and Parse(None, 0).tree is None
