"""A setting is declared once: what a field says of it reaches everything that asks."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Literal, get_args, get_origin, get_type_hints

import pytest

import tf_transformer
from tf_transformer.config import SAMPLING, SETTINGS
from tf_transformer.config.settings import Setting

PACKAGE = Path(tf_transformer.__file__).parent
# Fields after the last one of a section, which stands before its `# fmt: on`.
FIELDS = {
    "TrainingConfig": """
    told: int = setting(3, low=1, high=9, flag="--told N", paper="9.9", resume="recorded",
        init_from="own", help="what is told of it")
    untold: int = setting(3, low=1, high=9, help="what is left")
    files: tuple[str, ...] = setting((), help="some files", flag="--files FILE", card="never")
""",
    "DecodingConfig": """
    searched: int = setting(3, low=1, high=9, flag="--searched N", of_search=True,
        help="what is sought")
""",
    "ModelConfig": """
    decoded: int = setting(3, low=1, high=9, help="what is decoded")
""",
}
QUESTIONS = """
import io, json, sys
from contextlib import redirect_stderr, suppress
from pathlib import Path
from tf_transformer.api.train import configure
from tf_transformer.base.errors import UserError
from tf_transformer.cli.main import command_parser
from tf_transformer.cli.options import config_of
from tf_transformer.config import Config
from tf_transformer.config.presets import recipe, train_command
from tf_transformer.reports.run_card import additions, departures
from tf_transformer.run import Run
from tools.reference import commands_page, settings_page

def outcome(command, *words):
    errors = io.StringIO()
    with redirect_stderr(errors), suppress(SystemExit):
        command_parser(command).parse(list(words))
    return errors.getvalue()

def resumed(name):
    try:
        return Run.create_or_resume(run.path, run.config.replace({name: 4})) and "accepted"
    except UserError as error:
        return str(error)

words = "--told 5 --files a --files b,c --set training.untold=5".split()
trained = config_of(command_parser("train").parse(words))
run = Run.create_or_resume(Path("run"), trained.replace({"model.decoded": 5}))
answers = {"trained": vars(trained.training), "outside": outcome("train", "--told", "10")}
answers["departures"], answers["additions"] = departures(trained), additions(trained)
answers["paper"], answers["command"] = recipe("paper"), train_command(trained)
answers["stored"] = json.loads((run.path / "config.json").read_text())["training"]
answers["sampled"] = outcome("translate", "r", "--sample", "--searched", "4")
run.tokenizer.touch()
run.checkpoints.path.mkdir()
run.checkpoints.best.touch()
begun = configure(settings={"training.init_from": "run"}).flat()
answers["begun"] = {name: begun[f"training.{name}"] for name in ("told", "untold", "init_from")}
answers["begun"]["decoded"] = begun["model.decoded"]
run.checkpoints.state_path(1).touch()
answers["resumed"] = {n: resumed(f"training.{n}") for n in ("told", "untold")}
answers["resumed"]["searched"] = resumed("decoding.searched")
answers["changes"] = sorted({change["what"] for change in run.changes()})
answers["pages"] = [commands_page(), settings_page()]
print(json.dumps(answers))
"""


@pytest.fixture(scope="module")
def answers(tmp_path_factory) -> dict:
    """What a copy of the package answers whose config.py alone has more fields."""
    folder = tmp_path_factory.mktemp("declared")
    shutil.copytree(PACKAGE, folder / PACKAGE.name, ignore=shutil.ignore_patterns("*.pyc"))
    file = folder / PACKAGE.name / "config" / "config.py"
    text = file.read_text()
    for section, fields in FIELDS.items():
        head, name, rest = text.partition(f"class {section}:")
        before, end, after = rest.partition("    # fmt: on\n")
        text = head + name + before + fields.lstrip("\n") + end + after
    file.write_text(text)
    path = os.pathsep.join([str(folder), str(PACKAGE.parent)])
    done = subprocess.run(
        [sys.executable, "-c", QUESTIONS],
        env=os.environ | {"PYTHONPATH": path},
        cwd=folder,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_its_option_and_set_give_it_within_its_bounds(answers):
    given = answers["trained"]
    assert (given["told"], given["untold"], given["files"]) == (5, 5, ["a", "b,c"])
    assert answers["stored"] == given
    assert "--told must be an int from 1 to 9. Received: 10." in answers["outside"]
    for option in ("--told 5", "--set training.untold=5", "--files a --files b,c"):
        assert option in answers["command"].replace("--set training.told=5", "--told 5")


def test_the_reference_has_its_help(answers):
    commands, settings = answers["pages"]
    assert "| `--told N` | what is told of it |" in commands
    assert "| `--files FILE` | some files; repeatable |" in commands
    assert "| `--searched N` | what is sought (default: the run's) |" in commands
    assert "| `training.told` | `3` | an int from 1 to 9 | what is told of it |" in settings


def test_the_card_compares_it_with_the_paper_or_lists_what_the_paper_lacks(answers):
    assert answers["departures"]["training.told"] == [5, 3, "9.9"]
    assert answers["paper"]["training.told"] == 3
    assert answers["additions"]["training.untold"] == 5
    assert not {"training.told", "training.files"} & answers["additions"].keys()


def test_resuming_refuses_another_value_unless_the_field_says_otherwise(answers):
    assert answers["resumed"]["told"] == answers["resumed"]["searched"] == "accepted"
    assert answers["changes"] == ["decoding.searched", "training.told"]
    assert "training.untold was 5, now 4" in answers["resumed"]["untold"]


def test_training_from_another_run_takes_it_unless_the_field_says_otherwise(answers):
    assert answers["begun"] == {"told": 3, "untold": 5, "decoded": 5, "init_from": "run"}


def test_sampling_excludes_what_belongs_to_beam_search(answers):
    assert "--sample excludes --searched: it does not search" in answers["sampled"]


@pytest.mark.parametrize(("name", "setting"), (SETTINGS | SAMPLING).items())
def test_every_fact_is_one_of_its_words(name, setting):
    for fact, words in get_type_hints(Setting).items():
        if get_origin(words) is Literal:
            assert getattr(setting, fact) in get_args(words), (name, fact)
