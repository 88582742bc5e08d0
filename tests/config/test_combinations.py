"""The table of options that exclude or need each other, for commands and Python."""

import pytest
from command_line import assert_refused

from tf_transformer.base.errors import UserError
from tf_transformer.cli.main import COMMANDS, command_parser
from tf_transformer.cli.parser import actions
from tf_transformer.config.combinations import CONDITIONS, check

LITERT = "export r --output o --format litert"
EVALUATE = "evaluate --hypothesis h --reference r --report de"
LINES = [
    ("translate r --sample --beam 3", "--sample excludes --beam: it does not search"),
    ("translate r --sample --lookahead 2", "--sample excludes --lookahead"),
    ("translate r --temperature 0.5", "--temperature needs --sample"),
    ("translate r --word-probs", "--word-probs needs --n-best"),
    ("generate r --input i --output o.tsv --top-k 2", "--top-k needs --sample"),
    ("translate r --ensemble s --alignments a", "--alignments excludes --ensemble"),
    ("translate r --litert --ensemble s", "--litert excludes --ensemble: LiteRT is for one"),
    ("translate r --litert --precision bfloat16", "--litert excludes --precision bfloat16"),
    ("translate r --litert --sample", "--litert excludes --sample"),
    (f"{EVALUATE} --lowercase", "--report excludes --lowercase: it prints every kind"),
    (f"{EVALUATE} --tokenize none", "--report excludes --tokenize"),
    ("attention r s --kind cross --head 1", "--head needs --layer"),
    ("attention r s --layer 1 --head 1", "--head needs --kind encoder or --kind "),
    ("convert m --from marian o --quantization int8", "--from marian excludes --quantization"),
    ("export r --output o --better-than e", "--better-than needs --reference"),
    ("export r --output o --better-than e --reference s", "--better-than needs --source"),
    ("export r --output o --source s", "--source needs --better-than"),
    ("evaluate r --hypothesis h --reference r", "--hypothesis excludes RUN: it scores a file"),
    ("evaluate --hypothesis h --reference r --beam 1", "--hypothesis excludes --beam"),
    ("doctor r --model base", "RUN excludes --model: a run has its settings"),
    ("doctor r --tag a=b", "RUN excludes --tag"),
    ("doctor r --clean new", "--clean excludes RUN: give `train`, `source` and `target`."),
    ("export r --output o --fixed-length 40", "--fixed-length needs --format litert"),
    ("export r --output o --no-text --tag <2de>", "--no-text excludes --tag"),
    (f"{LITERT} --no-text", "--format litert excludes --no-text: they are for a SavedModel"),
    (f"{LITERT} --precision bfloat16", "--format litert excludes --precision bfloat16"),
]


@pytest.mark.parametrize(("line", "expected"), LINES)
def test_a_command_is_refused_before_it_begins(line, expected, capsys):
    assert_refused(capsys, line.split(), expected, status=2)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"sample": True, "alpha": 1.0}, "`sample=True` excludes `alpha`: it does not search"),
        ({"top_k": 5}, "`top_k` needs `sample=True`"),
        ({"litert": True, "ensemble": ["run"]}, "`litert=True` excludes `ensemble`"),
        ({"fixed_length": 9}, "`fixed_length` needs `format='litert'`"),
    ],
)
def test_arguments_of_a_function_are_refused_by_the_same_conditions(arguments, expected):
    with pytest.raises(UserError) as refused:
        check(arguments)
    assert expected in str(refused.value)


def test_what_combines_is_accepted():
    check({"litert": True, "precision": "int8", "beam_size": 4, "alpha": 1.0})
    check({"sample": True, "temperature": 0.5})
    check({})


def test_every_condition_names_options_that_a_command_has():
    for each in CONDITIONS:
        for other in (*each.excludes, *each.needs):
            names = {term.partition("=")[0] for term in (each.term, other)}
            assert any(names <= options for options in map(_options, COMMANDS)), (each, other)


def _options(command: str) -> set[str]:
    return {action.dest for action in actions(command_parser(command))}
