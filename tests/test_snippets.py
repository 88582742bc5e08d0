"""The Python snippets of the pages do what they say; other tests cover `ELSEWHERE`."""

import re

import tensorflow as tf
from snippets import ROOT, snippets

EXACT_TRAINING = "docs/explanation/exact-training.md"
LAYERS, TREES = "docs/guides/layers.md", "docs/explanation/trees.md"
ELSEWHERE = {
    "README.md", "docs/guides/decoding.md", "docs/guides/exporting.md",
    "docs/guides/serving.md",
}  # fmt: skip


def test_training_on_several_devices():
    (snippet,) = snippets(EXACT_TRAINING)
    names = {}
    exec(snippet, names)
    assert names["model"].optimizer is not None
    assert isinstance(names["strategy"], tf.distribute.MirroredStrategy)


def test_layers_make_models():
    names = {}
    for snippet in snippets(LAYERS):
        exec(snippet, names)
    assert names["model"].trainable_weights


def test_trees_as_sequences():
    (snippet,) = snippets(TREES)
    statements, _, repaired = snippet.rpartition("\n# its tree is ")
    *before, sequence, parsed = statements.splitlines()
    expression, _, shown = sequence.partition("  # ")
    names = {}
    exec("\n".join(before), names)
    assert str(eval(expression, names)) == shown
    result = eval(parsed, names)
    tree, repairs = re.match(r"(.*), its repairs (\d)", repaired).groups()
    assert (str(result.tree), result.repairs) == (tree, int(repairs))


def test_every_snippet_is_run():
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/*/*.md")]
    names = {str(page.relative_to(ROOT)) for page in pages}
    with_python = {name for name in names if snippets(name)}
    assert with_python == {EXACT_TRAINING, LAYERS, TREES} | ELSEWHERE
