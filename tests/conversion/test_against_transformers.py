"""The conversion against Hugging Face's own Marian: tokenizer, logits, search."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf
from marian_folder import config_of, write_vocabulary

from tf_transformer.config import BOS_ID, PAD_ID
from tf_transformer.conversion.from_marian import from_marian
from tf_transformer.tasks.translation.translator import load_translator

pytest.importorskip("safetensors")
torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

SOURCES = ["The old man sees a red house.", "We work.", "The dog runs and the cat sleeps here."]
AWKWARD = [
    *SOURCES,
    ">>deu<< The dog runs.",
    ">>fra<< The  dog,\truns.",
    "",
    "   ",
    "  many   blanks\u00a0and\u3000wide ones ",
    "☃ 😀👩‍👩‍👧 zœ",
    "日本語 mixed with 漢字",
    "the \x00 dog\x07 runs \x00",
    "ﬁne ½ ①",  # what NFKC rewrites
    "naïve Ærø, SHOUTED",
    "a ⁇ b ▁ c",
]


@pytest.fixture(scope="module", params=["safetensors", "bin"])
def both(request, tmp_path_factory):
    """The model and tokenizer in transformers, and our translator from the same checkpoint."""
    folder = tmp_path_factory.mktemp("marian")
    vocabulary = write_vocabulary(folder)
    config = transformers.MarianConfig(**config_of(len(vocabulary), forced_eos_token_id=0))
    torch.manual_seed(3)
    model = transformers.MarianMTModel(config).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "embed_positions" not in name:
                weight.add_(torch.randn_like(weight) * 0.3)
        model.final_logits_bias.copy_(torch.randn_like(model.final_logits_bias))
    model.save_pretrained(folder)
    if request.param == "bin":
        torch.save(model.state_dict(), folder / "pytorch_model.bin")
        (folder / "model.safetensors").unlink()
    tokenizer = transformers.MarianTokenizer(
        str(folder / "source.spm"), str(folder / "target.spm"), str(folder / "vocab.json")
    )
    run = from_marian(folder, folder / "run")
    return model, tokenizer, load_translator(run, "best")


def ours_of(tokenizer, translator) -> np.ndarray:
    """Our id for each of Marian's."""
    pieces = translator.tokenizer.pieces(np.arange(translator.tokenizer.vocab_size)).numpy()
    names = [piece.decode() for piece in pieces]
    ids = {name.removeprefix("▁" * (">>" in name)): i for i, name in enumerate(names)}
    ids["<pad>"] = BOS_ID
    return np.array([ids[name] for name in tokenizer.encoder])


@pytest.mark.parametrize(
    ("side", "texts"),
    [
        ("text", AWKWARD),
        ("text_target", ["Der alte Mann sieht ein Haus.", "schöne Füße", "", " ein  Mann ☃"]),
    ],
)
def test_texts_have_the_ids_of_marians_tokenizer(both, side, texts):
    _, tokenizer, translator = both
    ours = ours_of(tokenizer, translator)
    found, _ = translator.codec.encode(tf.constant(texts), target=side == "text_target")
    for text, ids in zip(texts, found.to_list(), strict=True):
        expected = ours[tokenizer(**{side: text})["input_ids"]].tolist()
        # Pieces that vocab.json lacks have their own ids here, and are <unk> to Marian.
        assert [1 if i > len(ours) else i for i in ids] == expected, text


@pytest.mark.parametrize(
    ("text", "theirs", "ours"),
    [
        # Marian looks up whole what the source model cannot spell, in the target's pieces too.
        ("e ü e", ["▁", "e", "▁", "ü", "▁", "e"], ["▁", "e", "▁", "<unk>", "▁", "e"]),
        # It splits off a language tag at the beginning, whatever follows, and nowhere else.
        (">>deu<<e", [">>deu<<", "▁", "e"], [">>deu<<", "e"]),
        ("a >>deu<<", [*"▁a▁", "<unk>", *"deu", "<unk>"], ["▁", "a", ">>deu<<"]),
        # It reads special tokens in text.
        ("</s>", ["</s>"], ["▁", "<unk>", "s", "<unk>"]),
    ],
)
def test_differences_from_marians_tokenizer_are_known(both, text, theirs, ours):
    _, tokenizer, translator = both
    vocabulary = tokenizer.encoder

    def known(piece: str) -> str:
        return piece if piece in vocabulary else "<unk>"

    assert [known(p) for p in tokenizer.tokenize(text)] == [known(p) for p in theirs]
    found = translator.tokenizer.pieces(translator.tokenizer.tokenize(tf.constant([text])))
    pieces = [piece.decode() for piece in found.to_list()[0]]
    assert [known(p.removeprefix("▁" * (">>" in p))) for p in pieces] == [
        known(p) for p in ours
    ]


def test_ids_decode_to_the_text_of_marians_target_model(both):
    _, tokenizer, translator = both
    random = np.random.default_rng(2)
    ours = ours_of(tokenizer, translator)
    ids = random.integers(4, len(ours) - 1, (200, 12))  # neither specials nor languages
    texts = translator.tokenizer.detokenize(np.int32(ours[ids])).numpy()
    for row, text in zip(ids, texts, strict=True):
        spelled = tokenizer.spm_target.decode_pieces([tokenizer.decoder[i] for i in row])
        # Marian keeps the "▁" of pieces that only the source model has.
        assert text.decode().strip() == spelled.replace("▁", " ").strip()


def test_logits_are_those_of_transformers(both):
    model, tokenizer, translator = both
    ours = ours_of(tokenizer, translator)
    (epsilon,) = {part.eps for part in model.modules() if isinstance(part, torch.nn.LayerNorm)}
    assert translator.model.config.norm_epsilon == epsilon
    source = tokenizer(SOURCES, return_tensors="pt", padding=True)
    target = np.random.default_rng(1).integers(2, len(ours) - 1, (len(SOURCES), 40))
    target[:, 0] = tokenizer.pad_token_id
    with torch.no_grad():
        expected = model(**source, decoder_input_ids=torch.tensor(target)).logits.numpy()
    ids = ours[source["input_ids"].numpy()]
    ids[source["attention_mask"].numpy() == 0] = PAD_ID
    assert np.any(ids == PAD_ID)
    found = translator.model({"source": ids, "target": ours[target]}).numpy()[..., ours]
    np.testing.assert_allclose(found, expected, atol=2e-5)


@pytest.mark.parametrize("beams", [1, 4])
def test_translations_are_at_least_as_probable(both, beams):
    """Without a length penalty, because ours has another form."""
    model, tokenizer, translator = both
    ours = ours_of(tokenizer, translator)
    decoding = dataclasses.replace(
        translator.decoding, beam_size=beams, alpha=0.0, max_length=12, no_repeat_ngram=1
    )
    source = tokenizer(SOURCES, return_tensors="pt", padding=True)
    outputs = model.generate(
        **source,
        num_beams=beams,
        do_sample=False,
        length_penalty=0.0,
        early_stopping="never" if beams > 1 else False,
        max_length=13,
        no_repeat_ngram_size=1,  # a random model ends in repetitions
        bad_words_ids=[[tokenizer.pad_token_id]],
    )
    encoded = translator.codec.encode(tf.constant(SOURCES))[0].to_tensor(PAD_ID)
    found = translator.engine.search_ids(encoded, decoding)
    theirs = np.zeros((len(SOURCES), 12), "int32")
    for row, tokens in zip(theirs, outputs.numpy(), strict=True):
        end = tokens.tolist().index(tokenizer.eos_token_id)
        row[:end] = ours[tokens[1 : end + 1]]
    if beams == 1:
        np.testing.assert_array_equal(found.tokens[:, 0, :12], theirs)
    log_probs = translator.engine.log_probs(encoded, theirs).numpy()
    # Ours may end a hypothesis outside the best 4 of a step, and so find a better one.
    assert np.all(found.log_probs[:, 0] > log_probs - 1e-4)
