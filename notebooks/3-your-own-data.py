# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Your own data
#
# From two text files to a model that a server can load: look at the data, train, evaluate,
# export. The command line, `tf-transformer`, does everything. The cells call it in this
# process, so that TensorFlow starts only once; in a terminal you type `tf-transformer` and then
# the text between the quotes.

# %%
import os
import re
import shlex
import tempfile
from pathlib import Path

from IPython.display import Image

from tf_transformer.cli.main import main
from tf_transformer.data import builtin
from tf_transformer.export.saved_model import SavedModelSession
from tf_transformer.run import Run

os.chdir(tempfile.mkdtemp())  # leaves no files in your working directory


def tf_transformer(arguments):
    """Runs `tf-transformer ARGUMENTS`, as in a terminal."""
    assert main(shlex.split(arguments)) == 0


# %% [markdown]
# ## The files
#
# Parallel text is two plain files with one sentence per line: line 7 of one is the translation
# of line 7 of the other. Their names are a common prefix and the language, here `text/train.en`
# and `text/train.de`. A dev set measures the model during training; a test set is for the end,
# and must not influence any choice.
#
# Put your own files there and skip this cell. Here the text is the part of the built-in
# corpus that is about dates and times.

# %%
times = re.compile(r"^Today is|\bbegin|\bbegan|\bend")
pairs = [pair for pair in builtin.pairs(20_000) if times.search(pair[0])]
pairs = [pair for pair in pairs if len(pair[0].split()) <= 8]
splits = {"train": pairs[:-120], "dev": pairs[-120:-60], "test": pairs[-60:]}

Path("text").mkdir()
for split, part in splits.items():
    for language, lines in zip(("en", "de"), zip(*part, strict=True), strict=True):
        Path(f"text/{split}.{language}").write_text("\n".join(lines) + "\n", "utf-8")

for split, part in splits.items():
    print(f"{split:6} {len(part):5,} pairs, such as: {' | '.join(part[-1])}")

# %% [markdown]
# ## Checks before training
#
# `doctor` takes the same options as `train` and looks for common mistakes: lines that do not
# belong together, copies, test sentences in the training text. It ends with the number of
# warnings.

# %%
data = "--train text/train --valid text/dev --source en --target de"
size = (
    "--set model.vocab_size=700 --set model.num_layers=1 --set model.d_model=64 "
    "--set model.d_ff=128"
)

tf_transformer(f"doctor {data} {size} --test text/test")

# %% [markdown]
# ## Training
#
# Training is one command. `--output` names the run directory, which receives everything that
# the other commands need: configuration, tokenizer, checkpoints and records. The settings make
# the model and the training small enough for this page; without them, the preset `tiny` takes
# some minutes, and [the tutorial](../docs/tutorials/your-own-data.md) says which model suits
# more text.
#
# Look at the lines with "step": loss and perplexity fall, and the BLEU score of dev set
# translations rises.

# %%
recipe = (
    "--set training.steps=240 --set training.batch_tokens=1024 --set training.warmup_steps=80 "
    "--set training.evaluate_every=60 --set training.average_last=2"
)
train = f"train --output runs/mine {data} {size} {recipe}"
tf_transformer(f"{train} --stop-after '100 steps'")

# %% [markdown]
# The warning is right, and harmless here: with so little text, pieces soon merge into whole
# words, and smaller pieces are left unused.
#
# This training was stopped early on purpose. After `--stop-after`, Ctrl-C, a crash or an empty
# battery, the same command resumes. "best" at the end of a line marks the best checkpoint so
# far, which the other commands use.

# %%
tf_transformer(train)

# %% [markdown]
# The curves are drawn from `runs/mine/metrics.jsonl`, which has a JSON object for each
# evaluation.

# %%
tf_transformer("curves runs/mine --output curves.png")
Image("curves.png", width=800)

# %%
history = Run.open("runs/mine").history()
assert history[-1]["valid_perplexity"] < history[0]["valid_perplexity"]
assert history[-1]["valid_bleu"] > history[0]["valid_bleu"]

# %% [markdown]
# The training perplexity is a mean over the steps since the last evaluation, with dropout, so
# it starts above that of the dev set. If the dev curve turns up while the training curve keeps
# falling, the model overfits: more text, more dropout or an earlier stop helps.
#
# ## Evaluation
#
# The test set has not been used so far. BLEU comes with sacreBLEU's signature: two figures are
# comparable only if their signatures are the same.

# %%
tf_transformer(
    "evaluate runs/mine --source text/test.en --reference text/test.de --output translated.de"
)
translations = Path("translated.de").read_text("utf-8").splitlines()

# %% [markdown]
# No figure replaces looking at the translations. The cell first prints those that differ from
# the reference, which is in brackets, then some that do not.

# %%
rows = [
    (english, translation, german)
    for (english, german), translation in zip(splits["test"], translations, strict=True)
]
for english, translation, german in sorted(rows, key=lambda row: row[1] == row[2])[:10]:
    print(f"{english:42} {translation}" + ("" if translation == german else f"  [{german}]"))

# %% [markdown]
# The errors show gaps in the training text. [Results](../docs/results/translation.md) has the
# whole built-in corpus, with longer and harder sentences and more steps.
#
# ## Export
#
# `export` writes a SavedModel for TensorFlow Serving: strings in, strings out. It loads the
# SavedModel again, compares its translations with those of the Python model, and publishes it
# only if they agree.

# %%
tf_transformer("export runs/mine --output exported/mine")

# %% [markdown]
# The number is the version that TensorFlow Serving looks for. Loaded as in TensorFlow Serving,
# the model gives the same translations as `evaluate`:

# %%
with SavedModelSession(Path("exported/mine/1")) as session:
    print("signatures:", ", ".join(session.signatures))
    served = session.run(
        "serving_default", {"text": [english for english, _ in splits["test"]]}
    )

assert [text.decode() for text in served["translation"]] == translations

# %% [markdown]
# Next steps: `tf-transformer serve runs/mine` answers over HTTP, with a page for the browser;
# [serving](../docs/guides/serving.md) describes TensorFlow Serving in Docker and Kubernetes;
# [the notebook on attention](2-attention-and-heads.ipynb) shows what a model attends to, and
# which of its heads it needs.
