"""A beam wide enough for all hypotheses finds the n best of them, as brute force does.

Fails when the bound on what a beam can still score divides by the length penalty of its present
length instead of that of the longest possible one.
"""

import itertools

import keras
import numpy as np
import pytest
import sentencepiece

import tf_transformer

BOS, EOS, OTHERS = 2, 3, (1, 4, 5, 6)  # id 0 is padding
LIMIT = 4  # of a hypothesis, with EOS: 1 + 4 + 16 + 64 of them exist
SOURCES = [
    "".join(each) for size in (1, 2, 3, 4) for each in itertools.product("ab", repeat=size)
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Holds ab.model, whose subwords are the word mark, a and b, and model.keras, random."""
    folder = tmp_path_factory.mktemp("tiny")
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["ab"]), model_prefix=f"{folder}/ab", model_type="char",
        vocab_size=7, pad_id=0, unk_id=1, bos_id=BOS, eos_id=EOS, minloglevel=2,
    )  # fmt: skip
    keras.utils.set_random_seed(1)
    sizes = {"num_layers": 1, "d_model": 16, "d_ff": 16, "num_heads": 2}
    model = tf_transformer.Transformer(vocab_size=7, **sizes)
    model.set_weights([2 * weight for weight in model.get_weights()])  # more decided
    model.save(folder / "model.keras")
    return folder


@pytest.fixture(scope="module")
def hypotheses(folder):
    """Every hypothesis of each source: its text, log-probability and length."""
    model = keras.saving.load_model(folder / "model.keras")
    subwords = sentencepiece.SentencePieceProcessor(model_file=f"{folder}/ab.model")
    found = {source: [] for source in SOURCES}
    for source, length in itertools.product(SOURCES, range(1, LIMIT + 1)):
        begun = np.array([*itertools.product(OTHERS, repeat=length - 1)], int)
        target = np.pad(begun, [(0, 0), (1, 0)], constant_values=BOS)
        labels = np.pad(begun, [(0, 0), (0, 1)], constant_values=EOS)
        sources = np.tile([*subwords.encode(source), EOS], (len(begun), 1))
        logits = np.array(model({"source": sources, "target": target}), "float64")
        steps = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
        log_probs = np.take_along_axis(steps, labels[..., None], axis=-1).sum(axis=(1, 2))
        texts = subwords.decode(begun.tolist())
        found[source] += zip(texts, log_probs, itertools.repeat(length), strict=False)
    return found


@pytest.mark.parametrize("alpha", [0.6, 2.0])
def test_the_n_best_are_those_of_brute_force(folder, hypotheses, alpha):
    translator = tf_transformer.load(folder / "model.keras", tokenizer=folder / "ab.model")
    options = {"beam_size": 64, "alpha": alpha, "max_length": LIMIT}
    best = translator.translate(SOURCES, **options)
    n_best = translator.translate(SOURCES, **options, n_best=5)
    for source, one, ranked in zip(SOURCES, best, n_best, strict=True):
        scored = [  # Wu et al. 2016, equation 14
            (log_prob / ((5 + length) / 6) ** alpha, text)
            for text, log_prob, length in hypotheses[source]
            if length > 1  # the source is not blank, so neither is its translation
        ]
        expected = sorted(scored, reverse=True)[:5]
        assert str(one) == expected[0][1]
        assert [str(each) for each in ranked] == [text for _, text in expected]
        scores = [each.score for each in (one, *ranked)]
        np.testing.assert_allclose(scores[1:], [score for score, _ in expected], atol=1e-4)
        assert scores[0] == pytest.approx(scores[1], abs=1e-4)
