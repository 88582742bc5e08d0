"""Rules read from evalb's parameter files."""

import pytest
from shared_data import lines_of, shared_data

from tf_transformer.errors import UserError
from tf_transformer.tasks.parsing.bracket_rules import COLLINS, read_rules


def test_the_rules_of_collins_are_those_of_his_parameter_file():
    assert read_rules(lines_of(shared_data("evalb-check") / "COLLINS.prm")) == COLLINS


def test_every_line_of_a_parameter_file_adds_to_the_rules():
    lines = ["## rules ##", "", "LABELED 0   ", "CUTOFF_LEN 70", "DEBUG 1", "MAX_ERROR 10"]
    lines += ["DELETE_LABEL TOP", "DELETE_LABEL ,", "DELETE_LABEL_FOR_LENGTH -NONE-"]
    lines += ["QUOTE_LABEL ``", "EQ_LABEL ADVP PRT", "EQ_LABEL A B", "EQ_WORD an a"]
    rules = read_rules(lines)
    assert rules.labelled is False and rules.cutoff == 70
    assert (rules.delete, rules.delete_for_length) == ({"TOP", ","}, {"-NONE-"})
    assert (rules.quotes, rules.equal_words) == ({"``"}, {frozenset(("a", "an"))})
    assert rules.same_label("PRT", "ADVP") and rules.same_label("B", "A")
    assert not rules.same_label("A", "PRT")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("DELETE_LABELS TOP", r"^my\.prm:2: a line must begin with one of .* DELETE_LABELS\.$"),
        ("EQ_LABEL ADVP", r"^my\.prm:2: EQ_LABEL must have 2 values\. Received: ADVP\.$"),
        ("DELETE_LABEL", r"^my\.prm:2: DELETE_LABEL must have 1 value\. Received: none\.$"),
        ("CUTOFF_LEN forty", r"^my\.prm:2: CUTOFF_LEN must have one whole number.* forty\.$"),
    ],
)
def test_a_wrong_parameter_is_reported_with_its_line(line, message):
    with pytest.raises(UserError, match=message):
        read_rules(["# a comment", line], "my.prm")
