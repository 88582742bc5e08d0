"""An exported parser maps text to the same trees as its run."""

import json
import re

import pytest
import tensorflow as tf
from command_line import status_of

from tf_transformer import load
from tf_transformer.cli.main import main
from tf_transformer.errors import UserError
from tf_transformer.run import Run
from tf_transformer.serving.gate import Gate
from tf_transformer.serving.publish import CARD, agree
from tf_transformer.serving.session import SavedModelSession
from tf_transformer.tasks.parsing.exported import ExportedParser
from tf_transformer.tasks.parsing.parser import Parser, _comparisons
from tf_transformer.tasks.parsing.task import read_dev_text
from tf_transformer.tasks.parsing.trees import read_line


@pytest.fixture(scope="module")
def parser(parsing_run) -> Parser:
    return load(parsing_run.path, task="parsing")


@pytest.fixture(scope="module")
def of_export(exported_parser) -> ExportedParser:
    return load(exported_parser.parent, task="parsing")


def test_an_export_parses_like_its_run(parsing_run, parser, of_export):
    trees = parsing_run.lines("dev.ptb")
    words = [" ".join(parse.tree.words()) for parse in of_export.parse(["a dog ."] * 2)]
    assert words == ["a dog ."] * 2
    long = " ; ".join(["the dog sees a cat"] * 30)
    texts = ["", "the cat ( sees a dog .", long, "\u200b", '"']
    assert of_export.parse(texts) == parser.parse(texts)
    assert any(parse.cut and parse.repairs for parse in parser.parse(texts))
    assert of_export.evaluate(trees) == parser.evaluate(trees)
    assert of_export.parse([]) == []


def test_the_card_has_the_task_vocabulary_and_sizes(exported_parser, parser):
    card = json.loads((exported_parser / CARD).read_text("utf-8"))
    assert (card["task"], card["vocabulary"]["size"]) == ("parsing", 330)
    assert card["sizes"]["words_in_lexicon"] == len(parser.grammar.lexicon.words) > 5
    assert card["evaluation_of_these_weights"]["valid_f1"] > 50


def test_the_self_test_of_an_export_detects_every_difference(exported_parser, parser):
    class Tampered:
        def run(self, signature, inputs):
            answer = session.run(signature, inputs)
            numbers = {name: answer[name] + 1 for name in ("score", "repairs")}
            flags = {name: ~answer[name] for name in ("cut", "source_cut")}
            return {"tree": answer["tree"] + b"!"} | numbers | flags

    with SavedModelSession(exported_parser) as session:
        assert all(agree(*each[2:]) for each in _comparisons(session, parser))
        tampered = list(_comparisons(Tampered(), parser))
    assert not any(agree(*each[2:]) for each in tampered)
    outputs = session.signature("serving_default").outputs
    assert {what for what, *_ in tampered} == {f"serving_default: {name}" for name in outputs}


def test_plain_tensorflow_parses_bytes_that_are_not_utf8(exported_parser):
    model = tf.saved_model.load(str(exported_parser))
    answer = model.signatures["serving_default"](text=tf.constant([b"a \xff dog .", b"\xff"]))
    assert b"\xef\xbf\xbd" in answer["tree"][0].numpy()
    assert answer["tree"][1].numpy().count(b" \xef\xbf\xbd)") == 1


def test_given_trees_are_scored_and_attended_to(parser, parsing_run):
    (tree,) = read_line(parsing_run.lines("dev.ptb")[0])
    text = " ".join(tree.words())
    parse = str(parser.parse(text))
    scored = parser.score(text, parse)
    ((best,),) = parser.translator.translate([text], grammar=parser.grammar)
    assert scored.log_prob == pytest.approx(best.log_prob, abs=1e-4)
    assert scored.text == parse
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


def test_the_gate_compares_f1(parsing_run, parser, exported_parser):
    trees = parsing_run.corpus / "dev.ptb"
    dev = read_dev_text(Run.open(parsing_run.path), None, trees)
    with SavedModelSession(exported_parser) as session:
        report = Gate(exported_parser, dev).compare(session, {})
    expected = parser.evaluate(parsing_run.lines("dev.ptb")).f1
    assert report["f1"] == report["f1_of_published"] == pytest.approx(expected) != 0
    assert (report["p_value"], report["same_trees"], report["sentences"]) == (1.0, 30, 30)
    assert report["signature"] == "nrefs:1|version:evalb's rules COLLINS"


def test_a_worse_parser_is_not_published(parsing_run, exported_parser, tmp_path, capsys):
    command = ["export", str(parsing_run.path), "--output", str(tmp_path / "worse")]
    gate = ["--better-than", str(exported_parser)]
    gate += ["--reference", str(parsing_run.corpus / "dev.ptb")]
    assert status_of([*command, "--max-length", "4", *gate]) == 3
    error = capsys.readouterr().err
    assert re.search(r"error: Not published: it is worse than \S+\. F1 .* before \d\d\.", error)
    assert list((tmp_path / "worse").iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--source", "a", "--reference", "b"],
            "--source is for runs that translate: for --task parsing, the file",
        ),
        (["--margin", "1"], "--better-than and --reference belong together"),
        (["--shortlist"], "--shortlist is not for runs of --task parsing"),
        (["--no-repeat-ngram", "2"], "`decoding.no_repeat_ngram` must be 0 and .* at most 1"),
    ],
)
def test_options_that_parsers_lack_are_refused(
    parsing_run, tmp_path, arguments, message, capsys
):
    command = ["export", str(parsing_run.path), "--output", str(tmp_path / "new"), *arguments]
    assert main(command) == 1
    error = capsys.readouterr().err
    assert re.search(message, error) and error.count("\n") == 1
    assert not (tmp_path / "new").exists()
