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
# export. Everything is done by the command line, `tf-transformer`. So that TensorFlow starts
# only once, the cells call it in this process; in a terminal you type `tf-transformer` and then
# what stands between the quotes.

# %%
import os
import re
import shlex
import tempfile
from pathlib import Path

from IPython.display import Image

from tf_transformer.cli.main import main
from tf_transformer.data import builtin
from tf_transformer.run import Run
from tf_transformer.serving.session import SavedModelSession

os.chdir(tempfile.mkdtemp())  # nothing is left where you started


def tf_transformer(arguments):
    """`tf-transformer ARGUMENTS`, as in a terminal."""
    assert main(shlex.split(arguments)) == 0


# %% [markdown]
# ## The files
#
# Parallel text is two plain files, one sentence a line: line 7 of one is the translation of
# line 7 of the other. They are called by a common beginning and the language, here
# `text/train.en` and `text/train.de`. A dev set says during training how good the model is; a
# test set is for the end, and nothing is chosen by it.
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
# ## Before the hours are spent
#
# `doctor` takes the options of the training to come and looks for what usually goes wrong:
# lines that do not belong together, copies, swapped languages, test sentences among the
# training text, too little memory. It ends with the number of warnings.

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
# One command. `--output` names the run directory: configuration, tokenizer, checkpoints and
# records, all that other commands need. The settings make the model and the training small
# enough for this page; without them `--model tiny` takes some minutes, and
# [recipes](../docs/recipes.md) tell what suits more text.
#
# Look at the lines with "step": loss and perplexity fall, and BLEU of real translations of the
# dev set rises.

# %%
recipe = (
    "--set training.steps=240 --set training.batch_tokens=1024 --set training.warmup_steps=80 "
    "--set training.evaluate_every=60 --set training.average_last=2"
)
train = f"train --output runs/mine {data} {size} {recipe}"
tf_transformer(f"{train} --stop-after '100 steps'")

# %% [markdown]
# The warning is right, and harmless here: so little text is soon merged into whole words, and
# pieces of which they were made are left over.
#
# That training was ended early on purpose. Whatever ends it, `--stop-after`, Ctrl-C, a crash or
# the end of a battery, the same command goes on where it was. "best" at the end of a line says
# that this checkpoint is the best so far, which is the one that other commands use.

# %%
tf_transformer(train)

# %% [markdown]
# The curves come from `runs/mine/metrics.jsonl`, a JSON object for each evaluation.

# %%
tf_transformer("curves runs/mine --output curves.png")
Image("curves.png", width=800)

# %%
history = Run.open("runs/mine").history()
assert history[-1]["valid_perplexity"] < history[0]["valid_perplexity"]
assert history[-1]["valid_bleu"] > history[0]["valid_bleu"]

# %% [markdown]
# The perplexity of training is a mean over the steps since the last evaluation, with dropout,
# so it starts above that of the dev set. When the dev curve turns up while the other goes on
# falling, the model learns sentences by heart: then more text, more dropout or an earlier end
# helps.
#
# ## Evaluation
#
# On the test set, which played no part so far. BLEU comes with sacreBLEU's signature: two
# figures can be compared if their signatures are the same.

# %%
tf_transformer(
    "evaluate runs/mine --source text/test.en --reference text/test.de --output translated.de"
)
translations = Path("translated.de").read_text("utf-8").splitlines()

# %% [markdown]
# No figure replaces looking at the translations. First those that differ from the reference,
# which is in brackets, then some that do not.

# %%
rows = [
    (english, found, german)
    for (english, german), found in zip(splits["test"], translations, strict=True)
]
for english, found, german in sorted(rows, key=lambda row: row[1] == row[2])[:10]:
    print(f"{english:42} {found}" + ("" if found == german else f"  [{german}]"))

# %% [markdown]
# What is wrong tells what the training text lacks. All of the built-in corpus and more steps,
# with longer and harder sentences, are in [results](../docs/results.md).
#
# ## Export
#
# `export` writes a SavedModel for TensorFlow Serving: strings in, strings out. It loads what it
# wrote, compares its translations with those of the Python model, and publishes it only if they
# agree.

# %%
tf_transformer("export runs/mine --output exported/mine")

# %% [markdown]
# The number is the version that TensorFlow Serving looks for. Loaded as TensorFlow Serving
# loads it, the model gives what `evaluate` gave:

# %%
with SavedModelSession(Path("exported/mine/1")) as session:
    print("signatures:", ", ".join(session.signatures))
    served = session.run(
        "serving_default", {"text": [english for english, _ in splits["test"]]}
    )

assert [text.decode() for text in served["translation"]] == translations

# %% [markdown]
# From here: `tf-transformer serve runs/mine` answers over HTTP, with a page for the browser;
# [serving](../docs/serving.md) has TensorFlow Serving in Docker and Kubernetes. What the model
# attends to, and which of its heads it needs, is in [the notebook on
# attention](2-attention-and-heads.ipynb).
