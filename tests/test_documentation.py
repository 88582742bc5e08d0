"""Links and commands of the pages, their Python, the examples and the site are right."""

import inspect
import io
import json
import re
import runpy
import shlex
import subprocess
import sys
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
import yaml
from helpers import ROOT, snippets

import tf_transformer
from tf_transformer import evaluation
from tf_transformer.base.architecture import POSITION_KINDS, PositionKind
from tf_transformer.cli.main import COMMANDS, command_parser

OUTSIDE = [*ROOT.glob("*.md"), *ROOT.glob("experiments/**/*.md")]  # of the site
WRITTEN = [*OUTSIDE, *ROOT.glob("docs/**/*.md")]
PAGES = sorted(page for page in WRITTEN if page.parent.name != "notebooks")  # but for copies
EACH = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
COMMAND = r"tf-transformer|python (?:(?:train|export)\.py|benchmarks/|-m experiments\.)"


def links(page: Path) -> list[tuple[Path, str]]:
    """Returns the file and anchor ("" if none) of every link within the project."""
    targets = re.findall(r"\]\((?!http)([^)]+)\)", page.read_text("utf-8"))
    parts = [target.partition("#") for target in targets]
    return [(page.parent / file if file else page, anchor) for file, _, anchor in parts]


def anchors(page: Path) -> set[str]:
    """Returns the anchors that GitHub gives to a page's headings."""
    headings = re.findall(r"(?m)^#+ (.*)$", page.read_text("utf-8"))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def commands(page: Path) -> list[list[str]]:
    """Returns the words of every command in the page's code blocks without a language."""
    blocks = re.findall(r"(?ms)^```(\S*)\n(.*?)^```$", page.read_text("utf-8"))
    plain = "".join(text for language, text in blocks if not language).replace("\\\n", " ")
    lines = re.findall(rf"(?m)^ *((?:{COMMAND}).*)", plain)
    return [shlex.split(line, comments=True) for line in lines]


@cache
def options_of(command: str) -> set[str]:
    """Returns the options of a command."""
    return set(command_parser(command)._option_string_actions)


@cache
def options_of_script(path: str) -> set[str]:
    """Returns the options of a benchmark or an experiment, including the common ones."""
    shared = {"benchmarks": "harness/options.py", "experiments": "common.py"}
    folder = path.partition("/")[0]
    files = (path, f"{folder}/{shared[folder]}")
    sources = "".join((ROOT / file).read_text("utf-8") for file in files)
    return set(re.findall(r'"(--[\w-]+)"', sources))


@EACH
def test_links_lead_to_files_that_exist(page):
    assert [str(file) for file, _ in links(page) if not file.exists()] == []


@EACH
def test_links_lead_to_headings_that_exist(page):
    anchored = [(file, anchor) for file, anchor in links(page) if anchor]
    lost = [f"{file}#{anchor}" for file, anchor in anchored if anchor not in anchors(file)]
    assert lost == []


def test_navigation_names_every_page():
    docs = ROOT / "docs"
    index = (docs / "index.md").read_text("utf-8")
    trees = re.findall(r"(?ms)^```\{toctree\}\n(.*?)^```$", index)
    named = re.findall(r"(?m)^(?:.*<)?([\w-]+/[\w-]+)>?$", "".join(trees))
    written = [page for page in PAGES if page.parent.parent == docs]
    files = [*written, *ROOT.glob("notebooks/*.ipynb")]
    pages = [f"{file.parent.name}/{file.stem}" for file in files]
    assert sorted(named) == sorted(pages)


def modules(folder: Path) -> set[str]:
    """Returns the paths of the modules below a folder of the package, without endings."""
    package = ROOT / "tf_transformer"
    paths = (path.relative_to(package).with_suffix("") for path in folder.rglob("*.py"))
    return {str(path) for path in paths if path.name != "__init__"}


def listed(block: str) -> set[str]:
    """Returns the modules of architecture.md's list; "tasks/ a, b/ (c, d)" has tasks/b/c."""
    found = set()
    for line in re.sub(r"\n +", " ", block).splitlines():
        room, names = line.replace("one file each", "").split(" ", 1)
        for folder, inside in re.findall(r"(\w+/) \((.*?)\)", names):
            found |= {f"{room}{folder}{name}" for name in inside.split(", ")}
        found |= {
            room + name for name in re.findall(r"\w+", re.sub(r"\w+/ \(.*?\)", "", names))
        }
    return found


def test_lists_of_files_name_every_module():
    package = ROOT / "tf_transformer"
    architecture = (ROOT / "docs/explanation/architecture.md").read_text("utf-8")
    (block,) = re.findall(r"(?s)The files:\n\n```\n(.*?)```", architecture)
    assert listed(block) == modules(package)
    search = (ROOT / "docs/explanation/search.md").read_text("utf-8")
    named = re.findall(r"(?m)^\| `([\w/]+)\.py` \|", search)
    assert {*named} == modules(package / "decoding") | modules(package / "litert")


def test_the_reference_has_every_public_name():
    page = (ROOT / "docs" / "reference" / "api.md").read_text("utf-8")
    documented = re.findall(r"(?m)^\.\. autoapi\w+:: tf_transformer\.[\w.]*\b(\w+)$", page)
    assert set(tf_transformer.__all__) <= set(documented)
    public = [getattr(tf_transformer, name) for name in tf_transformer.__all__]
    public += [getattr(evaluation, name, None) for name in documented]
    for function in filter(inspect.isfunction, public):
        signature = inspect.signature(function)
        plain = [it.replace(annotation=it.empty) for it in signature.parameters.values()]
        written = signature.replace(parameters=plain, return_annotation=signature.empty)
        assert f"\n{function.__name__}{written}\n" in re.sub(r"(?<=,)\n +", " ", page)


@EACH
def test_quoted_commands_have_their_options(page):
    for words in commands(page):
        if words[1] == "-m":
            words = [words[0], f"{words[2].replace('.', '/')}/__main__.py", *words[3:]]
        name = words[1].removesuffix(".py")
        assert name in COMMANDS or (ROOT / words[1]).is_file(), words
        known = options_of(name) if name in COMMANDS else options_of_script(words[1])
        if "table3" in name:  # it passes others on
            known |= options_of("train")
        quoted = {word for word in words if word.startswith("--")}
        assert quoted <= known, (words, quoted - known)


@pytest.mark.parametrize("page", ["README.md", "docs/guides/decoding.md"])
def test_a_trained_run_is_used_as_printed(page, trained_run, capsys):
    Path("runs").mkdir()
    Path("runs/mine").symlink_to(trained_run.path)
    names: dict = {}
    export = 'export("exported/mine"'  # made quicker: as ids
    exec(snippets(page)[0].replace(export, f"{export}, text=False"), names)
    best = names["translator"].translate("Good morning.")
    assert capsys.readouterr().out.startswith(str(best))


def test_notebook_snippet_runs():
    _, snippet = snippets("README.md")
    # Full size would take too long, so the numbers in the text are made smaller.
    smaller = {"vocab_size=8000": "vocab_size=50", "num_layers=4": "num_layers=1"}
    for printed, number in {**smaller, "d_ff=1024": "d_ff=64"}.items():
        assert printed in snippet
        snippet = snippet.replace(printed, number)
    ids = np.array([[5, 6, 3, 0], [7, 8, 9, 3]], "int32")
    shifted = np.array([[2, 5, 6, 0], [2, 7, 8, 9]], "int32")
    pairs = ({"source": ids, "target": shifted}, ids)
    names = {"dataset": tf.data.Dataset.from_tensors(pairs)}
    exec(snippet, names)
    np.save("expected.npy", names["model"](pairs[0]))
    imports, _, _ = snippet.partition("\nmodel =")
    assert_loads_in_a_new_process(imports)


def assert_loads_in_a_new_process(imports: str) -> None:
    """The saving process knows all classes; another must get them from the imports."""
    code = f"""
import keras, numpy as np
{imports}
model = keras.saving.load_model("model.keras")
ids = np.array([[5, 6, 3, 0], [7, 8, 9, 3]], "int32")
shifted = np.array([[2, 5, 6, 0], [2, 7, 8, 9]], "int32")
logits = model({{"source": ids, "target": shifted}})
np.testing.assert_array_equal(logits, np.load("expected.npy"))
assert model.optimizer.iterations == 1
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


EXACT_TRAINING = "docs/explanation/exact-training.md"
LAYERS = "docs/guides/layers.md"
TERMS = "docs/guides/terms.md"
ELSEWHERE = {
    "README.md", "docs/guides/decoding.md", "docs/guides/exporting.md",
    "docs/guides/operating.md", "docs/guides/small_machines.md", "docs/explanation/trees.md",
    "experiments/heads/README.md",
}  # fmt: skip


def test_training_on_several_devices():
    (snippet,) = snippets(EXACT_TRAINING)
    names = {}
    exec(snippet, names)
    assert names["model"].optimizer is not None
    assert isinstance(names["strategy"], tf.distribute.MirroredStrategy)


def test_layers_make_models(monkeypatch):
    names = {}
    monkeypatch.setitem(POSITION_KINDS, "slopes", PositionKind())  # forgets it at the end
    for snippet in snippets(LAYERS):
        exec(snippet, names)
    assert names["model"].trainable_weights


def test_a_client_sends_slots_and_fills_them(monkeypatch, capsys):
    def echo(url: str, body: bytes) -> io.BytesIO:
        (text,) = json.loads(body)["instances"]
        assert re.findall("<.>", text) == ["<1>", "<2>", "<3>", "<4>"] and "two" in text
        return io.BytesIO(json.dumps({"predictions": [{"translation": text}]}).encode())

    monkeypatch.setattr("urllib.request.urlopen", echo)
    (snippet,) = snippets(TERMS)
    exec(snippet, {})
    assert capsys.readouterr().out == "Order 4711 : {name} and <b> two </b> dogs\n"


def test_every_snippet_is_run():
    names = {str(page.relative_to(ROOT)) for page in PAGES}
    with_python = {name for name in names if snippets(name)}
    assert with_python == {EXACT_TRAINING, LAYERS, TERMS} | ELSEWHERE


DOCS = ROOT / "docs"


def test_the_site_builds_without_a_warning(tmp_path):
    for package in ("sphinx", "furo", "myst_nb", "autoapi"):
        pytest.importorskip(package)
    arguments = ["-q", "-W", "--keep-going", "-b", "dummy", "-d", str(tmp_path / "doctrees")]
    program = (
        "import gc, sys, sphinx.cmd.build as b; gc.disable(); sys.exit(b.main())"  # quicker
    )
    command = [sys.executable, "-c", program, *arguments, str(DOCS), str(tmp_path / "site")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_learns_what_it_asserts(path, capsys):
    lines = path.read_text(encoding="utf-8").splitlines()
    assert len(lines) < 40 and lines[-1].startswith("assert ")
    runpy.run_path(str(path))
    assert capsys.readouterr().out


def test_the_citation_names_the_newest_release():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    releases = re.findall(
        r"(?m)^## ([\d.]+) - (\S+)$", (ROOT / "CHANGELOG.md").read_text("utf-8")
    )
    assert (citation["version"], str(citation["date-released"])) == releases[0]
