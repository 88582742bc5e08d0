"""Spans and terms in a search: each slot once, in every engine, and nothing for plain text."""

import itertools
import re
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import tensorflow as tf
from trained import quick_export, with_settings

from tf_transformer import load
from tf_transformer.base.errors import UserError
from tf_transformer.decoding.interface import SearchPlan, column
from tf_transformer.litert.engine import LiteEngine
from tf_transformer.litert.file import lite_file
from tf_transformer.litert.interpreter import InterpreterPool
from tf_transformer.terms.spans import differences
from tf_transformer.translation.translator import Translator

SIGNATURES = "serving_default", "with_options", "score", "attention"

# --- Spans that are kept ------------------------------------------------------------------
KEPT = {
    "Order 4711: {name} and <b>two</b> dogs": ["4711", "{name}", "<b>", "</b>"],
    "no span at all": [],
    "": [],
    "write to a@b.de, a@b.de": ["a@b.de", "a@b.de"],
    "the net and <3> of <3>": ["<3>", "<3>", "Netz"],
    "an old house": ["Altbau"],  # each word of the term has its slot
}


def test_each_span_comes_once_in_the_graph_in_an_export_and_in_litert(keeper, tmp_path):
    options = {"glossary": {"net": "Netz", "old house": "Altbau"}}
    expected = keeper.translate([*KEPT], **options)
    for found, spans in zip(expected, KEPT.values(), strict=True):
        assert {span: found.count(span) for span in spans} == dict(Counter(spans))
        assert not re.search("<[1-9]>", re.sub("<3>", "", found))
    assert [keeper.translate(text, **options) for text in KEPT] == expected  # one by one
    lite = InterpreterPool(lite_file(keeper.model, "float32"), 1)
    in_lite = LiteEngine.beside(keeper.engine, lite)
    of_lite = Translator(engine=in_lite, decoding=keeper.decoding)
    assert of_lite.translate([*KEPT], **options) == expected
    signatures = "serving_default", "with_options", "score", "places"
    export = load(quick_export(keeper, tmp_path / "e", *signatures))
    assert export.engine.has_slots and export.translate([*KEPT], **options) == expected
    sent = {"text": column([keeper.protection.protect(text).text for text in KEPT])}
    answer = export.engine.run("serving_default", sent)["translation"].tolist()
    plain = keeper.translate([text.decode() for text in sent["text"]], protect="none")
    assert [text.decode() for text in answer] == plain  # a client's own slots
    scored = keeper.score([*KEPT], expected)
    for text, one, same in zip(KEPT, expected, scored, strict=True):
        if not text:
            continue
        assert (same, same.num_tokens) == (one, one.num_tokens)
        assert same.log_prob == pytest.approx(one.log_prob, abs=1e-3)
    in_words = keeper.translate([*KEPT], word_probs=True, **options)
    assert [len(one.word_probs) for one in in_words] == [len(one.split()) for one in expected]
    pairs = keeper.align("<i>to <b>net</b> of</i> 4711", "<i>x <b>y</b></i> 4711").pairs
    assert {t for _, t in pairs} == {0, 1, 2} and {s for s, _ in pairs} <= {0, 1, 2, 3}
    drawn = keeper.translate([*KEPT], sample=True, seed=1, **options)
    assert all(map(str.__contains__, drawn, ["4711", "", "", "a@b.de", "Netz", "Altbau"]))


def test_text_without_slots_has_the_scores_of_a_search_without_the_rule(keeper):
    texts = ["two dogs and no span", "zwei Hunde", "write to order"]
    free, ruled = with_settings(keeper, max_length=4), with_settings(keeper, max_length=4)
    free.engine.has_slots = False
    found, expected = (one.translate(texts, n_best=4) for one in (ruled, free))
    same = [
        rank for rank, some in enumerate(expected) if not re.search("<[1-9]>", "".join(some))
    ]
    assert same
    for rank in same:
        assert found[rank] == expected[rank]
        assert [each.score for each in found[rank]] == [each.score for each in expected[rank]]


def test_text_without_slots_pays_nothing_for_the_rule(keeper, monkeypatch):
    engine, plan = keeper.engine, SearchPlan(keeper.decoding)

    def operations(plan: SearchPlan) -> list[str]:
        search = tf.function(lambda source: engine.search_ids(source, plan), autograph=False)
        graph = search.get_concrete_function(tf.TensorSpec([None, None], tf.int32)).graph
        bodies = [graph.as_graph_def(), *graph.as_graph_def().library.function]
        nodes = [
            [*getattr(body, "node", ()), *getattr(body, "node_def", ())] for body in bodies
        ]
        return sorted(node.op for some in nodes for node in some)

    without, ruled = (operations(replace(plan, slots=slots)) for slots in (False, True))
    monkeypatch.setattr(engine, "has_slots", False)
    assert without == operations(plan) and len(without) < len(ruled)


def test_a_slot_that_plain_text_would_get_is_never_written(keeper, monkeypatch):
    texts = ["two dogs and no span", "zwei Hunde", "write to order"]
    changed = with_settings(keeper, max_length=6)
    tokens = Counter(itertools.chain(*(each.tokens for each in changed.translate(texts))))
    (frequent, _), *_ = tokens.most_common(1)
    slots = np.full([9, 1], frequent, np.int32)  # the model's favourite, as if it were one
    monkeypatch.setattr(type(keeper.tokenizer), "slots", lambda self, side="source": slots)
    again = with_settings(keeper, max_length=6)
    assert not [each for each in again.translate(texts) if frequent in each.tokens]


def test_what_did_not_go_as_expected_is_said_in_a_line(keeper, caplog):
    many = " ".join(str(number) for number in range(1001, 1013))
    assert keeper.translate(many).endswith("1009")  # weights at random end at the limit
    assert "spans beyond the first 9 of a sentence, which are not protected: 3" in caplog.text
    assert "at their length limit, to whose end spans were moved: 1" in caplog.text
    caplog.clear()
    short = keeper.translate("1001 and 1002 and 1003", max_length=3)
    assert short == "1001 1002" and "that found no room in the translation: 1" in caplog.text
    caplog.clear()
    terms = {"two dogs": "x", "dogs and": "y"}
    keeper.translate("two dogs and no span", glossary=terms)
    assert "terms left out, since another that begins earlier overlaps them: 1" in caplog.text


def test_tags_have_the_words_of_the_text_without_them(keeper, translator, tmp_path):
    """With slots by their probabilities, without by alignment, in runs and exports."""
    tagged = "two <b>dogs <i>and</i></b> no <br/> span"
    bare = "two dogs and no span"
    export = load(quick_export(translator, tmp_path / "e", *SIGNATURES))
    for model in (keeper, translator, export):
        found, plain = model.translate(tagged, protect="default"), model.translate(bare)
        assert Counter(re.findall("<.*?>", found)) == Counter(re.findall("<.*?>", tagged))
        assert re.sub("<.*?>", "", found).split() == plain.split()
        assert found.log_prob == pytest.approx(plain.log_prob, abs=1e-4)
        # Weights at random may write a number of their own.
        assert not [each for each in differences(tagged, found) if "tag" in each]


def test_a_model_without_slots_refuses_what_it_cannot_keep(translator, texts, monkeypatch):
    with pytest.raises(UserError, match="`glossary` needs a model trained"):
        translator.translate(texts[0], glossary={"a": "b"})
    for options in ({"protect": "none"}, {"glossary": {}}):
        assert translator.translate(texts[0], **options) == translator.translate(texts[0])
    monkeypatch.setattr(translator.engine, "aligns", False)
    with pytest.raises(UserError, match="`protect` needs .* or a single model that can align"):
        translator.translate(texts[0], protect="default")


def test_an_empty_glossary_is_none(keeper):
    text = "To <3> and 4711"
    for protect in ("none", "default"):
        found = keeper.translate(text, protect=protect, glossary={})
        assert found == keeper.translate(text, protect=protect)
