"""Decoding step by step from the cache gives what a full forward pass over the target gives.

Fails when a step adds the encoding of position 0 to its token instead of that of its position;
the second test alone also when a beam reads its slot of the cache instead of its ancestors'.
"""

import keras
import numpy as np
import pytest
import sentencepiece
import tensorflow as tf

import tf_transformer
from tf_transformer import Transformer

PAD, BOS, EOS = 0, 2, 3
LONGEST = 12
TEXTS = ["seven one", "ten", "six two eleven zero nine four", "three three three", "one ten"]


def written_without_cache(model, source):
    """The greedy translation and its log-probability; each token takes a whole forward pass."""
    target, total = [BOS], 0.0
    while target[-1] != EOS:
        logits = model({"source": np.array([source]), "target": np.array([target])})
        log_probs = tf.nn.log_softmax(logits[0, -1]).numpy()
        log_probs[[PAD, BOS]] = -np.inf
        target.append(EOS if len(target) == LONGEST else int(log_probs.argmax()))
        total += log_probs[target[-1]]
    return target[1:-1], total


def test_greedy_search_equals_a_forward_pass_for_each_token(trained, tmp_path):
    keras.utils.set_random_seed(1)
    sizes = {"num_layers": 2, "d_model": 32, "d_ff": 64, "num_heads": 4}
    # Untied and pre-LN, so that random weights write varied tokens.
    model = Transformer(vocab_size=320, **sizes, tie_embeddings=False, norm_first=True)
    model.save(tmp_path / "model.keras")
    translator = tf_transformer.load(tmp_path / "model.keras", tokenizer=trained)
    found = translator.translate(TEXTS, beam_size=1, alpha=0.0, max_length=LONGEST)
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(trained / "tokenizer.model"))
    for text, translation in zip(TEXTS, found, strict=True):
        ids, log_prob = written_without_cache(model, [*pieces.encode(text), EOS])
        assert str(translation) == pieces.decode(ids)
        assert translation.score == pytest.approx(log_prob, abs=1e-4)


def test_the_scores_of_beams_are_those_of_full_passes(trained, text):
    translator = tf_transformer.load(trained)
    sources = (text / "dev.en").read_text("utf-8").splitlines()
    found = translator.translate(sources, n_best=4, beam_size=4)
    pairs = [
        (source, translation)
        for source, translations in zip(sources, found, strict=True)
        for translation in translations
    ]
    # One pass over each; a beam may have spelled its text in other pieces than `score` does.
    scored = translator.score([pair[0] for pair in pairs], [str(pair[1]) for pair in pairs])
    equal = [
        one.score == pytest.approx(translation.score, abs=1e-4)
        for one, (_, translation) in zip(scored, pairs, strict=True)
    ]
    assert len(equal) > 2 * len(sources)
    assert sum(equal) >= 0.9 * len(equal)
