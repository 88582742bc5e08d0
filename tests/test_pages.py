"""Links lead somewhere, the navigation has every page, and quoted commands exist."""

import re
import shlex
from functools import cache
from pathlib import Path

import pytest

import tf_transformer
from tf_transformer.cli.main import COMMANDS, command_parser

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
EACH = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
COMMAND = r"tf-transformer|python (?:train|export)\.py|python benchmarks/"


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
def options_of_benchmark(path: str) -> set[str]:
    """Returns the options of a benchmark, including the common ones."""
    shared = ROOT / "benchmarks" / "harness" / "options.py"
    sources = (ROOT / path).read_text("utf-8") + shared.read_text("utf-8")
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
    files = [*docs.glob("*/*.md"), *ROOT.glob("notebooks/*.ipynb")]
    pages = [f"{file.parent.name}/{file.stem}" for file in files]
    assert sorted(named) == sorted(pages)


def test_the_reference_has_every_public_name():
    page = (ROOT / "docs" / "reference" / "api.md").read_text("utf-8")
    documented = re.findall(r"(?m)^\.\. autoapi\w+:: tf_transformer\.[\w.]*\b(\w+)$", page)
    assert set(tf_transformer.__all__) <= set(documented)


@EACH
def test_quoted_commands_have_their_options(page):
    for words in commands(page):
        name = words[1].removesuffix(".py")
        assert name in COMMANDS or (ROOT / words[1]).is_file(), words
        known = options_of(name) if name in COMMANDS else options_of_benchmark(words[1])
        quoted = {word for word in words if word.startswith("--")}
        assert quoted <= known, (words, quoted - known)
