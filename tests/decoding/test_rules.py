"""A user's own rules: as printed in the guide, what they read, and who refuses them."""

import dataclasses
from typing import NamedTuple

import numpy as np
import pytest
import tensorflow as tf
from helpers import snippets
from table_model import NO_SCORE, TableStep, random_tables, run_search, search
from trained import traces_of, with_settings, with_slots

import tf_transformer
from tf_transformer import NextToken, Rule, UserError
from tf_transformer.config import DecodingConfig
from tf_transformer.decoding.rules import OnlyTokens
from tf_transformer.decoding.sampling import sample
from tf_transformer.litert.engine import LiteEngine
from tf_transformer.litert.file import lite_file
from tf_transformer.litert.interpreter import InterpreterPool
from tf_transformer.litert.search import numpy_beam_search


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A translator with slots and weights at random."""
    return with_slots(tmp_path_factory.mktemp("slots") / "tokenizer.model")


@pytest.fixture(scope="module")
def lite(small):
    pool = InterpreterPool(lite_file(small.model, "float32"), threads=1)
    engine = LiteEngine.beside(small.engine, pool)
    return tf_transformer.Translator(engine=engine, decoding=small.decoding)


TEXTS = ["two dogs", "write to order 4711", "net", "no span at all"]


def contains(tokens: tuple, part: list[int]) -> bool:
    return any([*tokens[i : i + len(part)]] == part for i in range(len(tokens)))


class Spelling(NamedTuple):
    """Spells every word with these pieces."""

    pieces: list[int]

    def ids(self, words, side):
        return [self.pieces]


def test_the_rule_in_the_guide_never_writes_its_word(small, lite, capsys):
    names = {"translator": small}
    _, snippet = snippets("docs/guides/decoding.md")
    exec(snippet, names)
    assert capsys.readouterr().out.strip() == str(small.translate("A dog."))
    free = small.translate(TEXTS, n_best=4)
    for size in (1, 3):
        word = [*free[0][0].tokens[:size]]
        rules = [names["Never"](Spelling(word), "")]
        assert any(contains(one.tokens, word) for some in free for one in some)
        found = small.translate(TEXTS, n_best=4, rules=rules)
        drawn = small.translate(TEXTS, n_best=4, rules=rules, sample=True)
        for some in (*found, *drawn):
            assert not any(contains(one.tokens, word) for one in some)
        others = lite.translate(TEXTS, n_best=4, rules=rules)
        assert [[*map(str, some)] for some in others] == [[*map(str, some)] for some in found]


class Recorder(Rule):
    """Notes the texts that it is given."""

    def __init__(self):
        self.read = []

    def context(self, texts):
        self.read += texts
        return {"lengths": np.array([*map(len, texts)], np.int32)}

    def next_token(self, beams):
        assert beams.context["lengths"].shape[0] == beams.tokens.shape[0]
        return NextToken()


def test_a_rule_reads_the_texts_as_given_and_is_traced_once(small, monkeypatch):
    fresh, rule = with_settings(small, max_extra_length=20), Recorder()
    traces = traces_of(monkeypatch, fresh.engine, "search_ids")
    assert fresh.translate(TEXTS, rules=[rule]) == small.translate(TEXTS)
    count = len(traces)  # one, and one more if a batch has slots and another none
    fresh.translate(TEXTS, rules=[rule])
    assert {*rule.read} == {*TEXTS, ""} and count in (1, 2) and len(traces) == count
    fresh.translate(TEXTS, rules=[Recorder()])
    assert len(traces) == 2 * count


def test_a_sentence_without_any_hypothesis_has_the_blank_translation(small, lite):
    nothing = OnlyTokens(np.zeros(330, bool))
    for translator, options in ((small, {}), (small, {"sample": True}), (lite, {})):
        found = translator.translate(TEXTS, rules=[nothing], n_best=2, **options)
        assert [[*map(str, some)] for some in found] == [[""]] * len(TEXTS)
        assert {(one.num_tokens, one.score, one.log_prob) for (one,) in found} == {
            (0, NO_SCORE, NO_SCORE)
        }


def test_the_searches_give_fillers_if_nothing_is_left():
    tables, nothing = random_tables(6, 8), {"drawable": (False,) * 8}
    limits = np.arange(6, dtype=np.int32) + 1
    rules = [(OnlyTokens(np.zeros(8, bool)), ())]
    decoding = DecodingConfig(beam_size=4)
    drawn, _ = run_search(
        tables, limits, sample, {"num_samples": 4, "seeds": limits, **nothing}
    )
    for found in (
        search(tables, limits, num_hypotheses=4, **nothing),
        drawn,
        numpy_beam_search(TableStep(tables), decoding, 4, limits, rules),
    ):
        # The first sentence ends at its limit of one token, which goes before all rules.
        assert (found.lengths[0, 0], found.lengths[1:].max()) == (1, 0)
        np.testing.assert_array_equal(found.scores[1:], NO_SCORE)


class InTensorFlow(Rule):
    """Computes in TensorFlow itself."""

    def next_token(self, beams):
        return NextToken(must_continue=tf.zeros_like(beams.max_lengths, bool)[:, tf.newaxis])


@dataclasses.dataclass
class NotFrozen(Rule):
    """Has no hash."""

    def next_token(self, beams):
        return NextToken()


def test_a_rule_in_tensorflow_works_for_a_run_and_litert_refuses_it(small, lite):
    rules = [InTensorFlow()]
    assert small.translate(TEXTS, rules=rules) == small.translate(TEXTS)
    with pytest.raises(UserError, match=r"^LiteRT cannot search with the rule InTensorFlow.*"):
        lite.translate(TEXTS, rules=rules)


@pytest.mark.parametrize("given", [[object()], Recorder(), [NotFrozen()]], ids=str)
def test_what_is_no_list_of_rules_is_refused(small, given):
    with pytest.raises(UserError, match="must be a list of `tf_transformer.Rule` objects"):
        small.translate(TEXTS, rules=given)
