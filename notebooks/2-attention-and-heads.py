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
# # Attention and heads
#
# What does a trained Transformer look at, and which of its heads does it need? This notebook
# trains a small one, looks inside, and then removes its heads one by one. Its last part uses an
# experiment of the repository, so start Jupyter in a clone: `PYTHONPATH=. jupyter lab`.

# %%
import json
import os
import re
import shlex
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from IPython.display import Image

from experiments.heads.__main__ import main as heads
from experiments.heads.masks import HeadMasks
from tf_transformer import load
from tf_transformer.cli.main import main
from tf_transformer.data import builtin

os.chdir(tempfile.mkdtemp())  # leaves no files in your working directory
plt.rcParams["figure.dpi"] = 80


def tf_transformer(arguments):
    """Runs `tf-transformer ARGUMENTS`, as in a terminal."""
    assert main(shlex.split(arguments)) == 0


# %% [markdown]
# ## A model to look into
#
# Two layers with four heads each, trained on English sentences about dates and times and their
# German translations, from the package's built-in corpus. [Your own
# data](3-your-own-data.ipynb) explains the commands.

# %%
times = re.compile(r"^Today is|\bbegin|\bbegan|\bend")
pairs = [pair for pair in builtin.pairs(20_000) if times.search(pair[0])]
pairs = [pair for pair in pairs if len(pair[0].split()) <= 8]
splits = {"train": pairs[:-100], "dev": pairs[-100:]}
for split, part in splits.items():
    for language, lines in zip(("en", "de"), zip(*part, strict=True), strict=True):
        Path(f"{split}.{language}").write_text("\n".join(lines) + "\n", "utf-8")

tf_transformer(
    "train --output run --train train --valid dev --source en --target de "
    "--set model.vocab_size=700 --set model.num_layers=2 --set model.d_model=64 "
    "--set model.d_ff=128 --set model.norm_first=true --set training.batch_tokens=1024 "
    "--set training.steps=220 --set training.warmup_steps=70 --set training.evaluate_every=220 "
    "--set training.average_last=1"
)

# %% [markdown]
# ## One sentence
#
# `attention` scores one translation of a sentence and returns all attention weights of that
# forward pass: of the encoder, of the decoder to itself, and of the decoder to the encoder
# ("cross"). There are N layers and H heads, with a row for each position that attends and a
# column for each position attended to.

# %%
translator = load("run")

english, german = "The film began on Tuesday.", "Der Film hat am Dienstag begonnen."
weights = translator.attention(english, german)
for kind in ("encoder", "decoder", "cross"):
    print(f"{kind:8} {getattr(weights, kind).shape}")

# %% [markdown]
# Two things hold for every head. The weights of a row sum to 1, because they come from a
# softmax. And the decoder never looks ahead: all weights above the diagonal are 0.

# %%
for kind in ("encoder", "decoder", "cross"):
    assert np.allclose(getattr(weights, kind).sum(axis=-1), 1, atol=1e-5)
assert not np.triu(weights.decoder, k=1).any()

# The heads of a layer differ: somewhere one looks closely at a piece that another ignores.
assert np.ptp(weights.cross[-1], axis=0).max() > 0.5

# %% [markdown]
# ## Cross-attention: what each piece translates
#
# The command `attention` draws the same weights: all heads of the last layer. Rows are German
# pieces at the step that predicts them, columns the English pieces. `▁` marks the beginning of
# a word.

# %%
sentence = f"'{english}' --target '{german}'"
tf_transformer(f"attention run {sentence} --kind cross --layer 2 --output cross.png")
Image("cross.png")

# %% [markdown]
# The heads differ: one looks at pieces that another ignores. Their mean gives a word alignment,
# in which pairs of words have boxes. Follow the time and the participle: both are in different
# positions than in English.

# %%
tf_transformer(f"attention run {sentence} --output alignment.png")
Image("alignment.png")

# %%
links = translator.align(english, german).pairs
for source, target in links:
    print(f"{english.split()[source]:8} - {german.split()[target]}")
assert (4, 4) in links  # Tuesday, Dienstag

# %% [markdown]
# An alignment from attention is a good guess, not a proof: the encoder has also mixed
# information from its neighbours into each position. If an article looks at its noun rather
# than at "the", that is no mistake: it takes its gender from the noun.
#
# ## Encoder: heads that look at neighbours
#
# One sentence is only an anecdote, so take the mean over many: how much weight does a head give
# to the piece d positions to the right (to the left, if d is negative)? A peak at 0 means that
# the head attends to the piece itself, a peak at -1 that it attends to the piece before.

# %%
distances = range(-3, 4)
sums, counts = np.zeros((2, 4, len(distances))), np.zeros(len(distances))
for attention in translator.attention(*map(list, zip(*splits["dev"], strict=True))):
    for index, distance in enumerate(distances):
        diagonal = np.diagonal(attention.encoder, distance, axis1=-2, axis2=-1)  # [N, H, ...]
        sums[..., index] += diagonal.sum(axis=-1)
        counts[index] += diagonal.shape[-1]
profile = sums / counts  # [N, H, distances]

figure, panels = plt.subplots(1, 2, figsize=(9, 3.2), sharey=True, layout="constrained")
for layer, axes in enumerate(panels):
    for head, style in enumerate(("ko-", "k^--", "ks:", "kD-.")):
        axes.plot(
            distances, profile[layer, head], style, label=f"head {head + 1}", markersize=5
        )
    axes.set(title=f"encoder, layer {layer + 1}", xlabel="distance (pieces)")
    axes.grid(alpha=0.3)
panels[0].set(ylabel="mean attention weight", ylim=(0, None))
panels[1].legend()
plt.show()

# %% [markdown]
# A head that prefers no position would give a flat line. The cell below measures how far each
# head is from that.

# %%
for layer, head in np.ndindex(2, 4):
    best = distances[profile[layer, head].argmax()]
    ratio = profile[layer, head].max() / profile[layer, head].mean()
    print(f"layer {layer + 1} head {head + 1}: most at {best:+d}, {ratio:.1f} times its mean")
assert profile.max() > 1.5 * profile.mean()

# %% [markdown]
# ## Masking a head
#
# Multi-head attention is a sum over heads: the product of the concatenated heads and $W^O$ is
# the sum of each head times its rows of $W^O$. So zeros in these rows remove one head and
# change nothing else. `HeadMasks` does this for a whole model, and restores the model
# afterwards.

# %%
masks = HeadMasks(translator.model)
print(len(masks.heads), "heads:", ", ".join(map(str, masks.heads[:5])), "...")


def loss():
    """Returns the mean negative log-probability of a German piece of the dev set, in nats."""
    scores = translator.score(*map(list, zip(*splits["dev"], strict=True)))
    return -sum(pair.log_prob for pair in scores) / sum(pair.num_tokens for pair in scores)


whole = loss()
cross = [head for head in masks.heads if head.kind == "cross"]
masks.apply(cross)
blind = loss()
masks.apply([])
print(f"all heads {whole:.2f}, without cross-attention {blind:.2f} nats a piece")
assert loss() == whole < blind

# %% [markdown]
# Without cross-attention the decoder does not see the source and can only invent German. The
# difference is what these heads are worth together. How much is each worth alone?
#
# ## Which heads the model needs
#
# `python -m experiments.heads` masks one head at a time and measures the loss (and BLEU, unless
# `--no-bleu`), then prunes: the least important first, until none is left. In this way Michel
# et al. (2019, [arXiv 1905.10650](https://arxiv.org/abs/1905.10650)) found that many heads of
# trained models can be removed.

# %%
heads(shlex.split("run --source dev.en --reference dev.de --no-bleu --output heads"))

# %% [markdown]
# The first picture shows how much each head is worth alone: the head whose removal hurts most
# is black.

# %%
Image("heads/importance.png", width=800)

# %% [markdown]
# The second picture shows the pruning. Read it from right (all heads) to left (none): while the
# curve is flat, heads can be removed at no cost.

# %%
Image("heads/pruning.png", width=480)

# %% [markdown]
# So a single head is worth little, because others do the same work, but all of them together
# are worth nearly everything. The cell asserts this: the values of the heads alone, added up,
# are less than the value of all together, and the less important half is worth less than a
# tenth of that.

# %%
study = json.loads(Path("heads/heads.json").read_text("utf-8"))
curve = study["curve"]
alone = sum(head["loss_change"] for head in study["importance"])
together = curve[-1]["loss"] - curve[0]["loss"]
half = curve[12]["loss"] - curve[0]["loss"]
print(f"each head alone, added up: {alone:.2f} nats a piece")
print(f"half of the heads together: {half:.2f}, all of them: {together:.2f}")
assert [curve[point]["kept"] for point in (0, 12, 24)] == [24, 12, 0]
assert alone < together and half < together / 10

# %% [markdown]
# More on the commands: [attention](../docs/guides/attention.md),
# [heads](../docs/guides/heads.md).
