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
# # The Transformer, section by section
#
# This notebook follows "Attention Is All You Need" (Vaswani et al. 2017, [arXiv
# 1706.03762](https://arxiv.org/abs/1706.03762)) in the order of its sections. It takes the
# layers one by one, builds the model from them, trains it with Keras's own `compile` and `fit`
# in about a minute on a laptop, translates sentences it has never seen, and ends with a
# SavedModel that takes text and returns text.
#
# The cells demonstrate every claim in the text: where a cell says `assert`, the claim is
# checked each time the notebook runs.

# %%
import random
import tempfile
from pathlib import Path

import keras
import matplotlib.pyplot as plt
import numpy as np
import tensorflow as tf
from keras import ops

from tf_transformer import (
    DecodingConfig,
    LabelSmoothedCrossEntropy,
    Perplexity,
    TokenAccuracy,
    Tokenizer,
    Transformer,
    TransformerSchedule,
    Translator,
    load,
)
from tf_transformer.config import ModelConfig
from tf_transformer.data.vocabulary import train_tokenizer
from tf_transformer.layers import (
    DecoderLayer,
    EncoderLayer,
    FeedForward,
    MultiHeadAttention,
    PositionalEmbedding,
    causal_mask,
    scaled_dot_product_attention,
    sinusoidal_positions,
)
from tf_transformer.reports.cost import parameter_count

keras.utils.set_random_seed(1)
tf.get_logger().setLevel("ERROR")
plt.rcParams.update({"figure.dpi": 80, "axes.grid": True, "grid.alpha": 0.3})


def same(a, b):
    """Tells whether two tensors are equal up to rounding."""
    return np.allclose(a, b, atol=1e-5)


# %% [markdown]
# ## 3.1 Encoder and decoder stacks
#
# The left half of Figure 1: an encoder layer is self-attention, then a feed-forward network.
# Around each of the two there is a residual connection and a layer normalisation, LayerNorm(x +
# Sublayer(x)). Because input and output have the same shape, layers can be stacked; the paper
# stacks N = 6.
#
# Shapes are written with one letter for each size: B sentences in a batch, S positions in the
# source, T in the target, D = d_model numbers in a position.

# %%
x = keras.random.normal((2, 5, 64))  # [B, S, D]
layer = EncoderLayer(num_heads=4, d_ff=128)
y = layer(x)
assert y.shape == x.shape

for weight in layer.weights:
    print(f"{weight.path:58} {tuple(weight.shape)}")

# %% [markdown]
# Four attention matrices, two feed-forward matrices with biases, and the scale and shift of two
# layer normalisations: that is all. Since the normalisation comes last ("post-LN"), each
# position of a new layer's output has mean 0 and variance 1, for any input:

# %%
assert same(ops.mean(y, axis=-1), 0)
assert same(ops.var(layer(100 * x), axis=-1), 1)

# %% [markdown]
# ## 3.2 Attention
#
# ### 3.2.1 Scaled dot-product attention
#
# A query is compared with every key by a dot product. A softmax turns the results into weights
# that sum to 1, and the output is the weighted mean of the values (equation 1):
#
# $$\mathrm{Attention}(Q, K, V) = \mathrm{softmax}\left(\frac{QK^T}{\sqrt{d_k}}\right)V$$
#
# In NumPy this takes four lines, and the layer's function agrees with them:

# %%
query, key, value = (keras.random.normal((2, 4, 5, 16)) for _ in range(3))  # [B, H, T, K]

scores = np.einsum("bhtk,bhsk->bhts", query, key) / np.sqrt(16)
weights = np.exp(scores) / np.exp(scores).sum(axis=-1, keepdims=True)
by_hand = weights @ np.array(value)

outputs, attention_weights = scaled_dot_product_attention(query, key, value)
assert same(outputs, by_hand) and same(attention_weights, weights)

# %% [markdown]
# Why divide by $\sqrt{d_k}$? The dot product of two vectors of $d_k$ independent numbers of
# variance 1 has variance $d_k$. Large scores push the softmax to where one weight is nearly 1,
# the others are nearly 0, and the gradient vanishes. The left plot shows the variance, the
# right one its effect on the largest of ten weights.

# %%
sizes = 2 ** np.arange(2, 11)
rng = np.random.default_rng(1)
variance, scaled_variance, largest, scaled_largest = [], [], [], []
for size in sizes:
    keys = rng.normal(size=(1_000, 10, size))
    dots = np.einsum("nk,nsk->ns", rng.normal(size=(1_000, size)), keys)
    variance.append(dots.var())
    scaled_variance.append((dots / np.sqrt(size)).var())
    largest.append(ops.softmax(dots).numpy().max(axis=1).mean())
    scaled_largest.append(ops.softmax(dots / np.sqrt(size)).numpy().max(axis=1).mean())

figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.4), layout="constrained")
left.loglog(sizes, variance, "ko-", label="q · k")
left.loglog(sizes, scaled_variance, "k^--", label="q · k / √d_k")
left.set(xlabel="d_k", ylabel="variance of the score")
right.semilogx(sizes, largest, "ko-", label="softmax of q · k")
right.semilogx(sizes, scaled_largest, "k^--", label="softmax of q · k / √d_k")
right.set(xlabel="d_k", ylabel="largest of 10 weights, mean", ylim=(0, 1.05))
for axes in (left, right):
    axes.set_xticks(sizes, sizes)
    axes.minorticks_off()
    axes.legend()

assert np.allclose(variance, sizes, rtol=0.1) and np.allclose(scaled_variance, 1, rtol=0.1)

# %% [markdown]
# Without scaling, the variance is $d_k$ and attention soon concentrates on a single position;
# with scaling, both stay the same for any width.
#
# ### 3.2.2 Multi-head attention
#
# A single attention function is a single weighted mean: it cannot attend to two positions for
# two reasons. So D is divided among H heads, each with its own projections; their outputs are
# concatenated and projected once more. The cell below takes the layer apart and computes the
# same result head by head, with the layer's four matrices.

# %%
attention = MultiHeadAttention(num_heads=4)
expected = attention(x)

heads = []
for head in range(4):
    columns = slice(16 * head, 16 * (head + 1))  # D / H = 64 / 4 = 16 of each matrix
    q = x @ attention.query_dense.kernel[:, columns]
    k = x @ attention.key_dense.kernel[:, columns]
    v = x @ attention.value_dense.kernel[:, columns]
    scores = q @ ops.swapaxes(k, 1, 2) / 16**0.5
    heads.append(ops.softmax(scores) @ v)  # [B, S, 16]
assert same(ops.concatenate(heads, axis=-1) @ attention.output_dense.kernel, expected)

# %% [markdown]
# More heads do not mean more parameters, because each head is narrower. For any H there are
# four matrices of D times D.

# %%
for num_heads in (1, 2, 4, 8, 16):
    layer = MultiHeadAttention(num_heads)
    layer.build((None, None, 64))
    print(f"{num_heads:2} heads of {64 // num_heads:2}: {layer.count_params():,} parameters")
    assert layer.count_params() == 4 * 64 * 64

# %% [markdown]
# ### 3.2.3 Where attention may look
#
# The decoder predicts the target from left to right. During training it receives the whole
# target at once, so a mask must hide all later positions from each position. The mask is a
# triangle, True where a query may look:

# %%
print(ops.cast(causal_mask(5)[0], "int32").numpy())

# %% [markdown]
# To test it, change the last target position: no output before it may change. Without the mask,
# every output does.

# %%
decoder_layer = DecoderLayer(num_heads=4, d_ff=128)
memory = keras.random.normal((2, 7, 64))  # in place of the encoder's output, [B, S, D]
changed = ops.concatenate([x[:, :-1], keras.random.normal((2, 1, 64))], axis=1)

before, after = decoder_layer(x, memory), decoder_layer(changed, memory)
assert same(before[:, :-1], after[:, :-1]) and not same(before[:, -1], after[:, -1])

unmasked_before, unmasked_after = attention(x), attention(changed)
assert not same(unmasked_before[:, :-1], unmasked_after[:, :-1])

# %% [markdown]
# Another mask hides the padding that fills up the short sentences of a batch. It is tested
# below, on the whole model.
#
# ## 3.3 Position-wise feed-forward networks
#
# $\mathrm{FFN}(x) = \max(0, xW_1 + b_1)W_2 + b_2$, with an inner width of F = d_ff, four times
# D in the paper. "Position-wise" means that no position sees another: computing one position at
# a time gives the same result as computing all at once.

# %%
feed_forward = FeedForward(d_ff=128)
together = feed_forward(x)
one_by_one = [feed_forward(x[:, position : position + 1]) for position in range(5)]
assert same(together, ops.concatenate(one_by_one, axis=1))

inner, outer = feed_forward.inner, feed_forward.outer
by_hand = ops.relu(x @ inner.kernel + inner.bias) @ outer.kernel + outer.bias
assert same(together, by_hand)

# %% [markdown]
# So positions learn about each other only through attention.
#
# ## 3.4 Embeddings and softmax
#
# One matrix of V rows serves three purposes: it embeds the source, embeds the target and,
# transposed, projects to the V logits before the softmax. When it embeds, it is multiplied by
# $\sqrt{d_{model}}$: rows of variance 1 / D give logits of variance 1; multiplied by $\sqrt{D}$
# they are embeddings of variance 1, as strong as the positions that are added to them.

# %%
embedding = PositionalEmbedding(vocab_size=1_000, d_model=64)
ids = keras.random.randint((2, 5), 4, 1_000)
embedded = embedding(ids)  # [B, S, D]: words and positions

words = ops.take(embedding.embeddings, ids, axis=0) * 64**0.5
assert same(embedded, words + sinusoidal_positions(ops.arange(5), 64))
assert same(embedding(x, reverse=True), x @ ops.transpose(embedding.embeddings))

print(f"variance of a row times D: {ops.var(embedding.embeddings) * 64:.2f}")
print(f"variance of the logits of normalised states: {ops.var(embedding(x, reverse=True)):.1f}")

# %% [markdown]
# ## 3.5 Positional encoding
#
# Attention ignores order. If the words are permuted, its outputs are permuted in the same way
# and nothing else changes: it is *permutation equivariant*. So is the feed-forward network, and
# therefore the whole encoder layer.

# %%
order = np.array([3, 0, 4, 2, 1])
layer = EncoderLayer(num_heads=4, d_ff=128)
assert same(ops.take(attention(x), order, axis=1), attention(ops.take(x, order, axis=1)))
assert same(ops.take(layer(x), order, axis=1), layer(ops.take(x, order, axis=1)))

# %% [markdown]
# "The dog bites the man" and "the man bites the dog" would be the same. So a vector that
# encodes the position is added to each word: sines and cosines, whose wavelengths grow from 2π
# to 10000 · 2π positions.

# %%
table = sinusoidal_positions(ops.arange(100), 64).numpy()  # [positions, D]

figure, axes = plt.subplots(figsize=(8, 3.6), layout="constrained")
image = axes.imshow(table.T, cmap="Greys", vmin=-1, vmax=1, aspect="auto", origin="lower")
axes.set(xlabel="position", ylabel="dimension of D = 64")
axes.grid(False)
figure.colorbar(image, label="encoding")
plt.show()

# %% [markdown]
# Each column encodes a position: fast waves below, slow ones above, like the hands of a clock.
# With them a permuted sentence is a different sentence:

# %%
encoded = layer(embedding(ids))
permuted = layer(embedding(ops.take(ids, order, axis=1)))
assert not same(ops.take(encoded, order, axis=1), permuted)

# %% [markdown]
# The paper chose sinusoids because a step of k positions is the same rotation everywhere, for
# any k. Two things follow, and the cell checks both: one matrix maps each position's encoding
# to that of the position k further on, and the similarity of two positions depends only on
# their distance.

# %%
k = 7
shift, *_ = np.linalg.lstsq(table[:-k], table[k:], rcond=None)
assert np.allclose(table[:-k] @ shift, table[k:], atol=1e-3)

similarity = table @ table.T / 32  # 1 for the same position: D / 2 pairs of sin² + cos² = 1
for distance in (0, 1, 5, 20):
    diagonal = np.diagonal(similarity, distance)
    print(f"distance {distance:2}: {diagonal.mean():.3f} everywhere")
    assert np.ptp(diagonal) < 1e-4

# %% [markdown]
# ## Figure 1: the model
#
# Now we put the parts together, as a plain functional Keras model in which nothing is hidden.
# N = 2 layers of D = 64 are enough for the rest of this notebook.

# %%
VOCAB_SIZE, NUM_LAYERS, D_MODEL, D_FF, NUM_HEADS, DROPOUT = 580, 2, 64, 128, 4, 0.1


def build_model():
    source = keras.Input((None,), dtype="int32", name="source")  # [B, S]
    target = keras.Input((None,), dtype="int32", name="target")  # [B, T], shifted right
    embedding = PositionalEmbedding(VOCAB_SIZE, D_MODEL)
    options = {"num_heads": NUM_HEADS, "d_ff": D_FF, "dropout": DROPOUT}

    memory = keras.layers.Dropout(DROPOUT)(embedding(source))
    for _ in range(NUM_LAYERS):
        memory = EncoderLayer(**options)(memory)

    hidden = keras.layers.Dropout(DROPOUT)(embedding(target))
    for _ in range(NUM_LAYERS):
        hidden = DecoderLayer(**options)(hidden, memory)

    logits = embedding(hidden, reverse=True)  # [B, T, V]: the same matrix a third time
    return keras.Model({"source": source, "target": target}, logits)


model = build_model()
print(f"{model.count_params():,} parameters")

# %% [markdown]
# Masks are passed on inside the model: the embedding marks id 0 as padding, Keras carries the
# mask along, and attention applies it. More padding must not change the logits of the real
# positions:

# %%
source = np.array([[5, 6, 7, 3], [8, 9, 3, 0]])
target = np.array([[2, 11, 12], [2, 13, 0]])
logits = model({"source": source, "target": target})
padded = model({"source": np.pad(source, ((0, 0), (0, 6))), "target": target})
assert logits.shape == (2, 3, VOCAB_SIZE) and same(logits, padded)

# %% [markdown]
# ## 4 Why self-attention
#
# Table 1 compares how many steps lie between two positions: a recurrent network needs as many
# as there are words between them, self-attention needs one. The gradient shows this: in a
# single encoder layer every output position depends directly on every input position, near or
# far:

# %%
sentence = tf.Variable(keras.random.normal((1, 12, 64)))
with tf.GradientTape() as tape:
    last = ops.sum(layer(sentence)[0, -1] * keras.random.normal((64,)))
reach = ops.norm(tape.gradient(last, sentence)[0], axis=-1)  # of each input position
assert ops.min(reach) > 0
print("gradient of the last position's output, by input position:")
print(np.round(reach.numpy(), 3))

# %% [markdown]
# ## 5.1 Training data and batching
#
# The paper uses 4.5 million sentence pairs. This notebook uses a tiny fragment of language that
# can be learnt in a minute and still needs attention: English to German, where the day moves to
# the front, the participle moves to the end, and article and adjective agree in gender and
# case.

# %%
PEOPLE = {
    **dict.fromkeys(["cook Koch", "friend Freund", "neighbour Nachbar"], "m"),
    **dict.fromkeys(["teacher Lehrerin", "sister Schwester", "daughter Tochter"], "f"),
    **dict.fromkeys(["child Kind", "girl Mädchen"], "n"),
}
THINGS = {
    **dict.fromkeys(["apple Apfel", "key Schlüssel", "table Tisch", "letter Brief"], "m"),
    **dict.fromkeys(["flower Blume", "bag Tasche", "bottle Flasche"], "f"),
    **dict.fromkeys(["book Buch", "picture Bild", "house Haus"], "n"),
}
ADJECTIVES = ["old alt", "young jung", "small klein", "new neu", "beautiful schön"]
VERBS = ["sees saw sieht gesehen", "finds found findet gefunden", "buys bought kauft gekauft",
         "paints painted malt gemalt", "carries carried trägt getragen"]  # fmt: skip
DAYS = ["Monday Montag", "Tuesday Dienstag", "Thursday Donnerstag", "Friday Freitag"]


def noun_phrase(rng, nouns, articles, masculine_ending):
    noun, gender = rng.choice(list(nouns.items()))
    english, german = noun.split()
    article = articles[gender]
    if rng.random() < 0.5:
        return f"the {english}", f"{article} {german}"
    adjective, adjektiv = rng.choice(ADJECTIVES).split()
    ending = masculine_ending if gender == "m" else "e"
    return f"the {adjective} {english}", f"{article} {adjektiv}{ending} {german}"


def sentence_pair(rng):
    subject, subjekt = noun_phrase(rng, PEOPLE, {"m": "der", "f": "die", "n": "das"}, "e")
    thing, objekt = noun_phrase(rng, THINGS, {"m": "den", "f": "die", "n": "das"}, "en")
    present, past, finite, participle = rng.choice(VERBS).split()
    if rng.random() < 0.5:  # the perfect tense has its participle at the end
        present, finite, objekt = past, "hat", f"{objekt} {participle}"
    english, german = f"{subject} {present} {thing}", f"{subjekt} {finite} {objekt}"
    if rng.random() < 0.5:  # a day at the front takes the verb along
        day, tag = rng.choice(DAYS).split()
        english, german = f"{english} on {day}", f"am {tag} {finite} {subjekt} {objekt}"
    return f"{english[0].upper()}{english[1:]}.", f"{german[0].upper()}{german[1:]}."


rng = random.Random(1)
pairs = list(dict(sentence_pair(rng) for _ in range(2_500)).items())
unseen, pairs = pairs[:100], pairs[100:]
print(f"{len(pairs):,} pairs to learn from, {len(unseen)} kept apart, such as")
for english, german in unseen[:4]:
    print(f"  {english:48} {german}")

# %% [markdown]
# Byte-pair encoding finds the pieces, with one vocabulary for both languages. `</s>` ends a
# sentence. The decoder reads the target shifted right, after `<s>`, and must predict each next
# piece.

# %%
folder = Path(tempfile.mkdtemp())
texts = [text for pair in pairs for text in pair]
train_tokenizer(texts, folder / "tokenizer.model", vocab_size=VOCAB_SIZE, kind="bpe")
tokenizer = Tokenizer(folder / "tokenizer.model")


LENGTH = 16  # slightly more than the longest sentence


def encode(texts, length):
    """Returns ids [B, length] with the end of sentence (3), padded with 0."""
    ids = tokenizer.tokenize(tf.constant(texts))
    ends = tf.fill([ids.nrows(), 1], 3)
    return tf.concat([ids, ends], axis=1).to_tensor(shape=[None, length])


def dataset_of(pairs):
    english, german = zip(*pairs, strict=True)
    source, labels = encode(english, LENGTH), encode(german, LENGTH)
    target = tf.where(labels == 0, 0, tf.roll(labels, 1, axis=1))
    target = tf.concat([tf.fill([len(pairs), 1], 2), target[:, 1:]], axis=1)  # <s> is 2
    return tf.data.Dataset.from_tensor_slices(({"source": source, "target": target}, labels))


training_set = dataset_of(pairs).shuffle(len(pairs), seed=1).repeat().batch(64)
unseen_set = dataset_of(unseen).batch(100)

inputs, labels = next(iter(unseen_set))
for name, ids in {**inputs, "labels": labels}.items():
    pieces = [piece.decode() for piece in tokenizer.pieces(ids[0]).numpy()]
    print(f"{name:7}", " ".join(pieces).replace("<pad>", "·"))

# %% [markdown]
# ## 5.3 Optimizer
#
# Adam with β₁ = 0.9, β₂ = 0.98, ε = 10⁻⁹ and a learning rate that grows for some steps and then
# falls with the inverse square root of the step (equation 3):
#
# $$lrate = d_{model}^{-0.5} \cdot \min(step^{-0.5},\; step \cdot warmup^{-1.5})$$
#
# Each peak is at the last step of its warm-up. A longer warm-up lowers the peak, a narrower
# model raises it.

# %%
steps = np.arange(20_000)
figure, axes = plt.subplots(figsize=(8, 3.6), layout="constrained")
for style, d_model, warmup in (("-", 512, 4_000), ("--", 512, 8_000), (":", 256, 4_000)):
    rates = TransformerSchedule(d_model, warmup)(steps).numpy()
    label = f"d_model {d_model}, warm-up {warmup:,} steps"
    axes.plot(steps + 1, rates, f"k{style}", label=label)
    assert rates.argmax() + 1 == warmup and same(rates.max(), (d_model * warmup) ** -0.5)
axes.set(xlabel="step", ylabel="learning rate", ylim=(0, None))
axes.legend()
plt.show()

# %% [markdown]
# ## 5.4 Regularisation
#
# Dropout of 0.1 is applied to the output of each sublayer, and to embeddings plus positions, in
# `build_model` above. Label smoothing keeps the model from being too certain: 0.9 of the target
# probability goes to the right piece, and 0.1 is spread over all V. The loss of a batch is its
# mean over real positions; padding does not count. In NumPy:

# %%
SMOOTHING = 0.1
loss = LabelSmoothedCrossEntropy(SMOOTHING)

logits = model(inputs).numpy()
log_probs = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
goal = (1 - SMOOTHING) * np.eye(VOCAB_SIZE)[labels.numpy()] + SMOOTHING / VOCAB_SIZE
cross_entropy = -(goal * log_probs).sum(axis=-1)  # [B, T]
by_hand = cross_entropy[labels.numpy() != 0].mean()
assert same(loss(labels, logits), by_hand)

# %% [markdown]
# A smoothed loss never reaches 0, even for a perfect model: it cannot fall below the entropy of
# its own target.

# %%
others = SMOOTHING / VOCAB_SIZE
right = 1 - SMOOTHING + others
floor = -right * np.log(right) - (VOCAB_SIZE - 1) * others * np.log(others)
print(
    f"untrained {by_hand:.2f} nats a piece, chance {np.log(VOCAB_SIZE):.2f}, ideal {floor:.2f}"
)

# %% [markdown]
# ## Training
#
# Plain Keras: `compile` and `fit`.

# %%
model.compile(
    optimizer=keras.optimizers.Adam(
        TransformerSchedule(D_MODEL, warmup_steps=60), beta_1=0.9, beta_2=0.98, epsilon=1e-9
    ),
    loss=loss,
    metrics=[Perplexity(), TokenAccuracy()],
)
STEPS, EPOCHS = 20, 12
history = model.fit(
    training_set,
    validation_data=unseen_set,
    steps_per_epoch=STEPS,
    epochs=EPOCHS,
    shuffle=False,
    verbose=0,
).history

for epoch in (0, 2, 5, 8, 11):
    print(
        f"step {STEPS * (epoch + 1):3}: loss {history['loss'][epoch]:.2f}, on unseen sentences "
        f"{history['val_loss'][epoch]:.2f}, accuracy {history['val_accuracy'][epoch]:.0%}"
    )

# %%
steps = STEPS * np.arange(1, EPOCHS + 1)
figure, axes = plt.subplots(figsize=(8, 3.6), layout="constrained")
axes.plot(steps, history["loss"], "ko-", label="training, with dropout")
axes.plot(steps, history["val_loss"], "k^--", label="unseen sentences")
axes.axhline(floor, color="0.5", linestyle=":", label="perfect model")
axes.set(xlabel="step", ylabel="loss (nats a piece)", ylim=(0, None))
axes.legend()

assert floor < history["val_loss"][-1] < floor + 0.3

# %% [markdown]
# Both curves approach the dotted line, the lowest possible loss. The loss of unseen sentences
# may even be lower than that of the training sentences: dropout is off for them, and a training
# figure is the mean over the last 20 steps.
#
# ## 6.1 Translation
#
# The class `Transformer` is the model built above, plus methods for decoding. With the same
# weights it gives the same logits:

# %%
transformer = Transformer(
    vocab_size=VOCAB_SIZE,
    num_layers=NUM_LAYERS,
    d_model=D_MODEL,
    d_ff=D_FF,
    num_heads=NUM_HEADS,
    dropout=DROPOUT,
)
transformer.set_weights(model.get_weights())
assert same(transformer(inputs), model(inputs))

# %% [markdown]
# Decoding is beam search: each step keeps the best 4 beginnings, and the score of a finished
# sentence is divided by a length penalty with exponent α = 0.6.

# %%
translator = Translator(transformer, tokenizer, DecodingConfig(beam_size=4, alpha=0.6))
sources, references = zip(*unseen, strict=True)
translations = translator.translate(sources)

right = np.array(translations) == np.array(references)
for source, translation, is_right in list(zip(sources, translations, right, strict=True))[:8]:
    print(f"{source:50} {'=' if is_right else '≠'} {translation}")
print(f"\n{right.mean():.0%} of {len(unseen)} unseen sentences without an error")
assert right.mean() > 0.7

# %% [markdown]
# Articles, endings and word order are right in sentences that the model has never seen.
#
# How does it know where to look? The decoder's attention to the encoder shows it. Below is the
# second layer, averaged over the heads; each row is a German piece at the step that predicts
# it, each column an English piece. Follow the dark cells: the first rows attend to the far
# right, where English has the day, and the participle near the end attends back to the verb.
# The cell asserts both.

# %%
english = "The young daughter found the old key on Friday."
weights = translator.attention(english)
cross = weights.cross[-1].mean(axis=0)  # [T, S]


def looks_at(target_piece):
    return weights.source[cross[weights.target.index(target_piece)].argmax()]


assert looks_at("▁Freitag") in ("▁on", "▁Friday") and looks_at("▁gefunden") == "▁found"

figure, axes = plt.subplots(figsize=(6.5, 5.5), layout="constrained")
image = axes.imshow(cross, cmap="Greys", vmin=0)
axes.set_xticks(range(len(weights.source)), weights.source, rotation=90)
axes.set_yticks(range(len(weights.target)), weights.target)
axes.set(xlabel="English piece attended to", ylabel="German piece, as predicted")
axes.grid(False)
figure.colorbar(image, label="attention weight", shrink=0.8)
plt.show()

# %% [markdown]
# ## 6.2 Model variations
#
# Table 3 varies the base model: heads, key size, depth, width, dropout, positions. Base and big
# are presets of the package, `experiments/table3` has the other rows. Do they have as many
# parameters as the paper says? The paper's vocabulary has "about 37000" tokens, so compare the
# differences from base rather than the totals: where D is unchanged, the vocabulary does not
# affect them.

# %%
rows = {  # what differs from base, and the paper's millions of parameters
    "base": ({}, 65),
    "B, d_k 16": ({"key_dim": 16}, 58),
    "B, d_k 32": ({"key_dim": 32}, 60),
    "C, N 2": ({"num_layers": 2}, 36),
    "C, N 4": ({"num_layers": 4}, 50),
    "C, N 8": ({"num_layers": 8}, 80),
    "C, d_model 256": ({"d_model": 256}, 28),
    "C, d_model 1024": ({"d_model": 1024}, 168),
    "C, d_ff 1024": ({"d_ff": 1024}, 53),
    "C, d_ff 4096": ({"d_ff": 4096}, 90),
    "big": ({"d_model": 1024, "d_ff": 4096, "num_heads": 16}, 213),
}
models = {name: ModelConfig(vocab_size=37_000, **sizes) for name, (sizes, _) in rows.items()}
millions = {name: parameter_count(config) / 1e6 for name, config in models.items()}
print(f"{'':16} {'paper':>6} {'here':>7} {'from base: paper':>18} {'here':>7}")
for name, (_, printed) in rows.items():
    paper, here = printed - rows["base"][1], millions[name] - millions["base"]
    print(f"{name:16} {printed:6} {millions[name]:7.1f} {paper:+18} {here:+7.1f}")
    if models[name].d_model == 512:
        assert abs(paper - here) < 1

sizes = {"num_layers": NUM_LAYERS, "d_model": D_MODEL, "d_ff": D_FF, "num_heads": NUM_HEADS}
assert parameter_count(ModelConfig(vocab_size=VOCAB_SIZE, **sizes)) == model.count_params()

# %% [markdown]
# They agree up to the paper's rounding. The last line compares the formula with the model built
# above.
#
# ## A SavedModel: text in, text out
#
# Tokenizer, model and beam search are TensorFlow operations, so one graph holds all three. The
# exported files are tested against the translator before they are published.

# %%
path = translator.export(folder / "exported")
served = load(path)
answer = served.translate(sources[:20])
for source, translation in list(zip(sources, answer, strict=False))[:3]:
    print(f"{source:50} {translation}")
assert answer == translations[:20]

# %% [markdown]
# The loaded model gives the same translations as the Python translator.
#
# The command `tf-transformer export RUN` writes such a model for TF Serving from a run: see
# [exporting](../docs/guides/exporting.md).
#
# Next: [attention and heads](2-attention-and-heads.ipynb) of a trained model, and [your own
# data](3-your-own-data.ipynb).
