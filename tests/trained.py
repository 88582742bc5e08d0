"""Helpers for tests with a trained or a small model."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from tf_transformer.config import SLOTS, DecodingConfig
from tf_transformer.data.vocabulary import symbol_pieces, train_tokenizer
from tf_transformer.decoding.engine import GraphEngine
from tf_transformer.decoding.interface import Translation
from tf_transformer.export.publishing import publish
from tf_transformer.export.signatures import exportable
from tf_transformer.models.transformer import Transformer
from tf_transformer.translation.translator import Translator

DECODING = DecodingConfig(beam_size=4, alpha=0.6)


def assert_same(found: list[list[Translation]], expected: list[list[Translation]]) -> None:
    """The best hypotheses are equal; those after them may change places where they tie."""
    assert len(found) == len(expected)
    for (one, *_), (other, *_) in zip(found, expected, strict=True):
        assert (one, one.num_tokens) == (other, other.num_tokens)
        assert one.log_prob == pytest.approx(other.log_prob, abs=1e-4)
        assert one.score == pytest.approx(other.score, abs=1e-4)


def with_settings(translator: Translator, **settings) -> Translator:
    """A translator of the same model that has traced nothing, with other settings."""
    decoding = dataclasses.replace(DECODING, **settings)
    return Translator(translator.model, translator.tokenizer, decoding)


def quick_export(translator: Translator, folder: Path, *signatures: str) -> Path:
    """An export with these signatures alone, which the caller compares with the translator."""
    whole = exportable(translator)
    functions = {name: whole.functions[name] for name in signatures}
    some = dataclasses.replace(whole, functions=functions, requests=(), checks=lambda _: ())
    return publish(some, folder)


def traces_of(monkeypatch, engine: GraphEngine, name: str) -> list[str]:
    """A list that grows by one each time the method `name` of the engine is traced."""
    traces, method = [], getattr(engine, name)
    monkeypatch.setattr(
        engine, name, lambda *args, **options: traces.append(name) or method(*args, **options)
    )
    return traces


SIZES = {"num_layers": 1, "d_model": 16, "d_ff": 16, "num_heads": 2, "dropout": 0.0}


def small_model(vocab_size: int, **arguments) -> Transformer:
    return Transformer(vocab_size, **(SIZES | arguments))


def with_slots(path: Path) -> Translator:
    """A translator with weights at random, and a tokenizer with slots, which goes to a path."""
    lines = [
        "two dogs and no span at all",
        "zwei Hunde und gar nichts",
        "write to order, net of",
    ]
    train_tokenizer(lines, path, vocab_size=330, symbols=symbol_pieces(SLOTS))
    model, random = small_model(330), np.random.default_rng(3)
    model.set_weights([random.normal(0, 0.7, w.shape) for w in model.get_weights()])
    return Translator(model, path, dataclasses.replace(DECODING, max_extra_length=20))
