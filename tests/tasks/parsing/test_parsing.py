"""The parsing task: its data, its dev score, its parser and the grammar that constrains it."""

import dataclasses
import random
import re
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from helpers import lines_of, shared_data, toy_trees

from tf_transformer.base.errors import UserError
from tf_transformer.config import BOS_ID, EOS_ID, PAD_ID, Config, DecodingConfig
from tf_transformer.data.tokenizer import Tokenizer
from tf_transformer.data.vocabulary import train_tokenizer
from tf_transformer.decoding.engine import GraphEngine
from tf_transformer.decoding.text_codec import Translation
from tf_transformer.loading.load import load_engine
from tf_transformer.models.transformer import build_model
from tf_transformer.run import Run
from tf_transformer.run.checkpoints import load_weights
from tf_transformer.tasks.checks import check_parsing
from tf_transformer.tasks.parsing.brackets import score_lines, summarise
from tf_transformer.tasks.parsing.parser import LONGEST_CHAIN, Counts, Parser, TreeGrammar
from tf_transformer.tasks.parsing.task import ParsingTask
from tf_transformer.tasks.parsing.trees import (
    LEXICON_FILE,
    Lexicon,
    delinearise,
    linearise,
    linearised,
    read_line,
)


@pytest.fixture(scope="module")
def task(parsing_run) -> ParsingTask:
    return ParsingTask(Run.open(parsing_run.path), lambda *_: None)


@pytest.fixture(scope="module")
def engine(task) -> GraphEngine:
    return load_engine(task.run, "best")


@pytest.fixture(scope="module")
def run_grammar(task) -> TreeGrammar:
    return TreeGrammar(task.tokenizer, Lexicon.load(task.run.path / LEXICON_FILE))


@pytest.fixture(scope="module")
def parser(task, engine, run_grammar) -> Parser:
    return Parser(engine, task.run.config.decoding, run_grammar)


def sequences_of(parser: Parser, texts: list[str]) -> list[Translation]:
    """What the search writes for the texts, as in `parser.parse`."""
    return [
        one
        for (one,) in parser.engine.translate(texts, parser.decoding, rules=[parser.grammar])
    ]


def sentences(task: ParsingTask) -> list[str]:
    return [words for words, _ in task.dev_pairs]


# --- Data --------------------------------------------------------------------------------


def test_every_token_of_a_sequence_is_one_piece(task):
    lines = Path(f"{task.data.train[0]}.sequences").read_text("utf-8").splitlines()
    lengths = [len(line.split()) + 1 for line in lines]  # and EOS
    assert [len(task.train.target(index)) for index in range(len(lines))] == lengths


def test_there_is_no_built_in_treebank():
    with pytest.raises(
        UserError, match="Parsing needs --train FILE .* of trees in .* Received: none of them"
    ):
        check_parsing(Config(task="parsing"))


def test_a_damaged_tree_is_refused_before_anything_else(parsing_run, tmp_path):
    (tmp_path / "bad.ptb").write_text("(S (UH Yes))\n(S (UH No)\n")
    config = Run.open(parsing_run.path).config
    with pytest.raises(UserError, match="bad.ptb:2:1"):
        check_parsing(config.replace({"data.valid": (str(tmp_path / "bad.ptb"),)}))


def test_symbols_are_in_the_vocabulary_too(parsing_run, tmp_path):
    config = Run.open(parsing_run.path).config.replace({"data.symbols": ("alpha",)})
    task = ParsingTask(Run.create_or_resume(tmp_path / "run", config), lambda *_: None)
    assert len(task.tokenizer.tokenize(["alpha"])[0]) == 1


def test_sampled_subwords_are_refused(parsing_run):
    config = Run.open(parsing_run.path).config.replace({"data.subword_sampling": 0.1})
    with pytest.raises(UserError, match="translation and classification.* Received: 0.1"):
        check_parsing(config)


# --- Dev score ---------------------------------------------------------------------------


def test_the_dev_score_is_the_bracketing_score_of_the_parses(task, parser):
    model = build_model(task.run.config)
    load_weights(task.run.checkpoints.best, model)
    result = task.evaluator(model)()
    parses = parser.parse(sentences(task))
    gold = [str(tree) for tree in task._gold]
    expected = summarise(score_lines(gold, list(map(str, parses))))
    names = "precision", "recall", "complete_match", "errors"
    for name in names:
        assert result.metrics[name] == getattr(expected, name)
    assert f"; {expected.valid:,} sentences" in result.lines[-2]
    assert result.metrics["f1"] == expected.f1 > 50
    assert result.metrics["well_formed"] == Counts.of(parses).well_formed
    assert result.headline == f"F1 {expected.f1:.2f}"


def test_an_untrained_model_is_scored_too(task):
    model = build_model(task.run.config)
    free = Parser(GraphEngine(model, task.tokenizer), task.run.config.decoding)
    assert Counts.of(free.parse(sentences(task))).well_formed < 0.2
    result = task.evaluator(model)()
    assert result.metrics["f1"] < 20
    repaired = (1 - result.metrics["well_formed"]) * len(sentences(task))
    assert round(repaired) <= result.metrics["cut"]  # thanks to the grammar


# --- Parser ------------------------------------------------------------------------------


def test_a_parse_is_a_tree_over_exactly_the_words(parser):
    texts = ["the cat sees a dog .", "", "zebra ( ünheard ) of % the", "  "]
    trees = [parse.tree for parse in parser.parse(texts)]
    assert [tree and tree.words() for tree in trees] == [
        ["the", "cat", "sees", "a", "dog", "."],
        None,
        ["zebra", "-LRB-", "ünheard", "-RRB-", "of", "%", "the"],
        None,
    ]
    assert Counts.of(parser.parse(texts)).sentences == 2


def test_with_the_grammar_only_sequences_cut_short_are_repaired(task, parser):
    """How many are cut depends on the model."""
    strange = ["zebra -LRB- ünheard -RRB- of % the", ", , , .", "the the the the the the the"]
    texts = [*sentences(task), *strange, "."]
    sequences = sequences_of(parser, texts)
    limits = parser.engine.codec(parser.decoding).length_limits(texts)
    whole = 0
    for text, one, limit in zip(texts, sequences, limits, strict=True):
        repairs = delinearise(one.split(), text.split()).repairs
        assert repairs == 0 or one.num_tokens == limit, text
        whole += repairs == 0
    parses = parser.parse(texts)
    assert Counts.of(parses).repaired == len(texts) - whole
    assert whole


@pytest.mark.parametrize("rule", [{"no_repeat_ngram": 3}, {"min_length": 5}])
def test_search_rules_that_can_forbid_every_tree_are_refused(task, engine, run_grammar, rule):
    config = task.run.config
    decoding = dataclasses.replace(config.decoding, **rule)
    with pytest.raises(UserError, match="must be 0 .* when the search is constrained to trees"):
        check_parsing(dataclasses.replace(config, decoding=decoding))
    with pytest.raises(UserError, match="`parse --constraint none` accepts"):
        Parser(engine, decoding, run_grammar)
    Parser(engine, decoding)


def test_a_beam_may_be_wider_than_there_are_hypotheses(task, engine, run_grammar):
    wide = dataclasses.replace(task.run.config.decoding, beam_size=21)
    parser = Parser(engine, wide, run_grammar)
    texts = ["the cat sees a dog .", "the .", ".", "a bird"]
    trees = [parse.tree for parse in parser.parse(texts)]
    assert [" ".join(tree.words()) for tree in trees] == texts


def test_a_sequence_cut_short_is_counted_and_repaired(engine):
    decoding = dataclasses.replace(DecodingConfig(), beam_size=1, max_length=4)
    short = Parser(engine, decoding)
    parses = short.parse(["the cat sees a dog .", "", "a bird likes the fish ."])
    assert [parse.cut for parse in parses] == [parse.repairs > 0 for parse in parses]
    assert Counts.of(parses).cut == 2
    assert parses[0].tree.words() == ["the", "cat", "sees", "a", "dog", "."]


def test_given_trees_are_scored_and_attended_to(parser, parsing_run):
    (tree,) = read_line(parsing_run.lines("dev.ptb")[0])
    text = " ".join(tree.words())
    parse = str(parser.parse(text))
    scored = parser.score(text, parse)
    (best,) = sequences_of(parser, [text])
    assert scored.log_prob == pytest.approx(best.log_prob, abs=1e-4)
    assert scored == parse
    attention = parser.attention(text)
    assert attention.target[0].startswith("\u2581(")
    assert len(attention.target) == best.num_tokens
    assert parser.attention([text], [parse])[0].target == attention.target
    with pytest.raises(UserError, match="trees:1:1: not a well-formed tree"):
        parser.score("a dog", "(NP (DT a")
    assert parser.score(["", " "], ["", "(S (-NONE- *))"])[0].num_tokens == 1


@pytest.mark.parametrize("tree", ["(NN dog) (NN dog)", "(NN cat)", "", "(S (-NONE- *))"])
def test_a_tree_over_other_words_than_its_sentence_is_refused(parser, tree):
    expected = "Tree 2 must be a single tree over the words of its sentence, 'dog'. Received: "
    with pytest.raises(UserError, match=re.escape(expected + repr(tree))):
        parser.score(["dog", "dog"], ["(S (NN dog))", tree])


def test_counts_add_up():
    both = Counts(3, 1, 4, 1) + Counts(1, 1, 5, 0)
    assert both == Counts(4, 2, 9, 1)
    assert both.summary() == (
        "4 sentences; well-formed: 50.0%; repaired: 2, by 9 changes; cut at the length limit: 1"
    )


# --- Grammar ----------------------------------------------------------------------------

PAIRS = [linearised(read_line(tree)[0]) for tree in toy_trees(60, 3)]


def train(path: Path, vocab_size: int, tags: Iterable[str] = ()) -> Tokenizer:
    """Trains a tokenizer with all tokens of `PAIRS` and more tags as single pieces."""
    tokens = {token for _, sequence in PAIRS for token in sequence.split()}.union(tags)
    sentences, symbols = (sentence for sentence, _ in PAIRS), {f"▁{one}" for one in tokens}
    train_tokenizer(sentences, path, vocab_size=vocab_size, kind="unigram", symbols=symbols)
    return Tokenizer(path)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory) -> Tokenizer:
    return train(tmp_path_factory.mktemp("tokenizer") / "tokenizer.model", 292)


@pytest.fixture(scope="module")
def grammar(tokenizer) -> TreeGrammar:
    return TreeGrammar(tokenizer, Lexicon.of_sequences(PAIRS))


def allowed(grammar: TreeGrammar, sentence: str, ids: list[int]) -> set[int]:
    """The ids that may follow `ids`."""
    tokens = tf.constant([[ids]], tf.int32, shape=[1, 1, len(ids)])
    return set(np.flatnonzero(grammar(tokens, grammar.context([sentence]))[0, 0]).tolist())


def ids_of(tokenizer: Tokenizer, sequence: str) -> list[int]:
    return [*tokenizer.tokenize([sequence])[0].numpy().tolist(), EOS_ID]


def test_every_training_tree_is_accepted(grammar, tokenizer):
    for sentence, sequence in PAIRS[:20]:
        ids = ids_of(tokenizer, sequence)
        for index, following in enumerate(ids):
            assert following in allowed(grammar, sentence, ids[:index])


def test_a_beam_is_constrained_in_a_batch_as_alone(grammar, tokenizer):
    sentences = [PAIRS[0][0], PAIRS[1][0]]
    beams = [
        [ids_of(tokenizer, sequence)[:4] for _, sequence in PAIRS[n : n + 3]] for n in (0, 1)
    ]
    together = grammar(tf.constant(beams), grammar.context(sentences)).numpy()
    for row, sentence in enumerate(sentences):
        for beam, ids in enumerate(beams[row]):
            alone = allowed(grammar, sentence, ids)
            assert set(np.flatnonzero(together[row, beam]).tolist()) == alone


def walk(grammar: TreeGrammar, sentence: str, chance: random.Random) -> list[int]:
    """A random sequence that the grammar accepts; brackets open rarely, so that it ends."""
    ids: list[int] = []
    while EOS_ID not in ids:
        choices = sorted(allowed(grammar, sentence, ids))
        assert choices and not {PAD_ID, BOS_ID} & {*choices}
        opening = [one for one in choices if grammar.kinds[one] == 1]
        others = [one for one in choices if one not in opening]
        ids.append(
            chance.choice(others if others and chance.random() < 0.6 else opening or others)
        )
    return ids


@pytest.mark.parametrize("any_tag", [False, True])
@pytest.mark.parametrize("number", [0, 1, 2, 3, -2, -1])
def test_every_accepted_sequence_is_a_tree_over_the_words(tokenizer, number, any_tag):
    sentence = [*(pair[0] for pair in PAIRS), "unseen words too ?", "."][number]
    grammar = TreeGrammar(tokenizer, Lexicon.of_sequences(PAIRS), any_tag=any_tag)
    assert grammar.context([sentence]).all() or not any_tag
    ids = walk(grammar, sentence, random.Random(number))
    text = tokenizer.detokenize(tf.constant([ids])).numpy()[0].decode()
    parse = delinearise(text.split(), sentence.split())
    assert parse.repairs == 0
    # With any tag a word may get that of a punctuation mark, which is written otherwise.
    assert any_tag or " ".join(linearise(parse.tree)) == text


def test_a_word_may_have_only_its_tags_in_the_lexicon(grammar, tokenizer):
    lexicon = Lexicon.of_sequences(PAIRS)
    pieces = tokenizer.pieces(tf.range(tokenizer.vocab_size)).numpy()
    for word in ("the", "unseen"):
        texts = {pieces[one].decode()[1:] for one in allowed(grammar, word, [])}
        tags = {text for text in texts if not text.startswith("(")}
        assert tags == set(lexicon.tags_of(word)) and tags
    assert lexicon.tags_of("the") == ["DT"]


def test_a_word_that_no_tag_fits_may_have_any(tokenizer):
    grammar = TreeGrammar(tokenizer, Lexicon(("DT", "NN"), {}))
    assert grammar.context([";", "a"]).tolist() == [[[True, True]], [[True, True]]]


def test_brackets_do_not_open_endlessly(grammar, tokenizer):
    bracket = ids_of(tokenizer, "(NP")[0]
    assert bracket in allowed(grammar, "the", [bracket] * (LONGEST_CHAIN - 1))
    assert bracket not in allowed(grammar, "the", [bracket] * LONGEST_CHAIN)


def test_an_impossible_beam_may_have_more_tags_than_there_are_words(grammar, tokenizer):
    tag = ids_of(tokenizer, "DT")[0]
    assert allowed(grammar, "the the", [tag] * 2) == {EOS_ID}
    assert allowed(grammar, "the the", [tag] * 5) == {EOS_ID}


@pytest.mark.parametrize(("tags", "received"), [(("NN", "NIX"), "1 of 2"), ((), "0 of 0")])
def test_a_tokenizer_without_a_tag_is_refused(tokenizer, tags, received):
    with pytest.raises(
        UserError, match=f"each tag .* as a single piece. Received: {received} tags"
    ):
        TreeGrammar(tokenizer, Lexicon(tags, {}))


@pytest.mark.parametrize("name", ["gum-const", "craft-treebank"])
def test_no_tree_of_the_free_treebanks_opens_more_brackets_in_a_row(name):
    longest = 0
    for line in lines_of(shared_data(name) / "train.ptb.gz")[::4]:
        for part in " ".join(linearise(read_line(line)[0])).split(" )"):
            runs = re.findall(r"(?:\([^ ]+ )+", part)
            longest = max(longest, *(run.count("(") for run in runs), 0)
    assert 1 < longest <= LONGEST_CHAIN
