"""A sentence is translated in the same way alone and in any company.

Fails when the decoder attends to the padding of shorter sources.
"""

import random

import pytest

import tf_transformer


@pytest.mark.parametrize("options", [{}, {"beam_size": 1}], ids=["beam", "greedy"])
def test_a_translation_does_not_depend_on_its_batch(trained, text, options):
    translator = tf_transformer.load(trained)
    sources = (text / "dev.en").read_text("utf-8").splitlines()
    sources += ["", "one " * 15]
    alone = {source: translator.translate(source, **options) for source in sources}
    for batch_tokens in (64, 4_096):
        random.Random(batch_tokens).shuffle(sources)
        together = translator.translate(sources, batch_tokens=batch_tokens, **options)
        for source, found in zip(sources, together, strict=True):
            assert str(found) == str(alone[source])
            assert found.score == pytest.approx(alone[source].score, abs=1e-4)
