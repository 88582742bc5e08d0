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
# From sentences in two lists to a model that a server can load: train, evaluate, export; and,
# at the end, the same text in Keras's own `fit`. In a terminal `tf-transformer` does all this
# with text files: see [the tutorial](../docs/tutorials/your-own-data.md).

# %%
import json
import os
import re
import tempfile
from pathlib import Path

import keras
import matplotlib.pyplot as plt

import tf_transformer
from tf_transformer.data import builtin

os.chdir(tempfile.mkdtemp())  # leaves no files in your working directory

# %% [markdown]
# ## The text
#
# Parallel text is pairs: a sentence and its translation. A dev set measures the model during
# training; a test set is for the end, and must not influence any choice.
#
# Put your own pairs here: a list of pairs, two lists, or two columns of a DataFrame, such as
# `pandas.read_csv("mine.csv")[["en", "de"]]`. Here the text is the part of the built-in corpus
# that is about dates and times.

# %%
times = re.compile(r"^Today is|\bbegin|\bbegan|\bend")
pairs = [pair for pair in builtin.pairs(20_000) if times.search(pair[0])]
pairs = [pair for pair in pairs if len(pair[0].split()) <= 8]
splits = {"train": pairs[:-120], "dev": pairs[-120:-60], "test": pairs[-60:]}

for split, part in splits.items():
    print(f"{split:6} {len(part):5,} pairs, such as: {' | '.join(part[-1])}")

# %% [markdown]
# ## Training
#
# Training is one call. `output` names the run directory, which receives everything that later
# steps need: the pairs, configuration, tokenizer, checkpoints and records. The settings make
# the model and the training small enough for this page; without them, the preset `tiny` takes
# some minutes, and [the tutorial](../docs/tutorials/your-own-data.md) says which model suits
# more text.
#
# Look at the lines with "step": loss and perplexity fall, and the BLEU score of dev set
# translations rises.

# %%
arguments = {
    "train": splits["train"],
    "valid": splits["dev"],
    "source": "en",
    "target": "de",
    "output": "runs/mine",
}
size = {"vocab_size": 700, "num_layers": 1, "d_model": 64, "d_ff": 128}
recipe = {
    "steps": 240,
    "batch_tokens": 1024,
    "warmup_steps": 80,
    "evaluate_every": 60,
    "average_last": 2,
}
translator = tf_transformer.train(**arguments, **size, **recipe, stop_after="100 steps")

# %% [markdown]
# This training was stopped early on purpose. After `stop_after`, Ctrl-C, a crash or an empty
# battery, the same call resumes; with other pairs it is refused. "best" at the end of a line
# marks the best checkpoint so far, whose weights the call returns.

# %%
translator = tf_transformer.train(**arguments, **size, **recipe)

# %% [markdown]
# `metrics.jsonl` in the run directory has a JSON object for each evaluation.

# %%
lines = Path("runs/mine/metrics.jsonl").read_text("utf-8").splitlines()
history = [json.loads(line) for line in lines]
steps = [record["step"] for record in history]
for name in ("perplexity", "valid_perplexity"):
    plt.plot(steps, [record[name] for record in history], marker="o", label=name)
plt.xlabel("step")
plt.legend()
plt.show()

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
sources, references = map(list, zip(*splits["test"], strict=True))
print(translator.evaluate(sources, references).bleu)

# %% [markdown]
# No figure replaces looking at the translations. The cell first prints those that differ from
# the reference, which is in brackets, then some that do not. A translation is a `str`, so it
# goes into comparisons, tables and files as it is.

# %%
translations = translator.translate(sources)
rows = zip(sources, translations, references, strict=True)
for english, translation, german in sorted(rows, key=lambda row: row[1] == row[2])[:10]:
    print(f"{english:42} {translation}" + ("" if translation == german else f"  [{german}]"))

# %%
translator.attention(sources[0])

# %% [markdown]
# The errors show gaps in the training text. [Results](../docs/results/translation.md) has the
# whole built-in corpus, with longer and harder sentences and more steps.
#
# ## Export
#
# `export` writes a SavedModel for TensorFlow Serving: strings in, strings out. It loads the
# SavedModel again, compares its translations with those of the Python model, and publishes it
# only if they agree. The number is the version that TensorFlow Serving looks for.

# %%
print(translator.export("exported/mine"))
assert tf_transformer.load("exported/mine").translate(sources) == translations

# %% [markdown]
# ## With Keras's `fit`
#
# `text_dataset` turns the same text into batches for `fit`, so that any callback, metric or
# optimizer of Keras can be used.

# %%
english, german = map(list, zip(*splits["train"], strict=True))
tf_transformer.train_tokenizer([*english, *german], "tokenizer.model", vocab_size=700)
tokenizer = tf_transformer.Tokenizer("tokenizer.model")
dataset = tf_transformer.text_dataset(english, german, tokenizer, batch_tokens=1024)
dev_set = tf_transformer.text_dataset(*zip(*splits["dev"], strict=True), tokenizer)

keras.utils.set_random_seed(1)
model = tf_transformer.Transformer(**size, num_heads=4)
model.compile(
    keras.optimizers.Adam(
        tf_transformer.TransformerSchedule(64, warmup_steps=80), beta_2=0.98, epsilon=1e-9
    ),
    tf_transformer.LabelSmoothedCrossEntropy(0.1),
    metrics=[tf_transformer.Perplexity()],
)
stop = keras.callbacks.EarlyStopping("val_loss", restore_best_weights=True)
log = model.fit(
    dataset, epochs=6, validation_data=dev_set, callbacks=[stop], shuffle=False, verbose=2
)
assert log.history["val_perplexity"][-1] < log.history["val_perplexity"][0]

# %% [markdown]
# The file of a model and `tokenizer.model` beside it are all that `load` needs. This one has
# trained for 66 steps, against 240 above: too few for good translations.

# %%
model.save("mine.keras")
print(tf_transformer.load("mine.keras").translate(sources[0]))

# %% [markdown]
# Next steps: `tf-transformer serve runs/mine` answers over HTTP, with a page for the browser;
# [serving](../docs/guides/serving.md) describes TensorFlow Serving in Docker and Kubernetes;
# [`tf-transformer doctor`](../docs/guides/doctor.md) looks for mistakes in text files;
# [the notebook on attention](2-attention-and-heads.ipynb) shows what a model attends to, and
# which of its heads it needs.
