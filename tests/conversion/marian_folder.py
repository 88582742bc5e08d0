"""A tiny Marian checkpoint in the format of huggingface.co, and Marian in NumPy.

The forward pass is written from the architecture and reads the tensors by Marian's names: it
shares nothing with our layers or our conversion.
"""

import functools
import io
import json
import string
from pathlib import Path

import numpy as np
import sentencepiece

from tf_transformer.data import builtin

LAYERS, D, F, HEADS = 2, 16, 24, 4
LANGUAGES = (">>deu<<", ">>fra<<")
EXTRA_SOURCE = [" ".join(string.ascii_letters)] * 20
# Characters of the target that the source model has never seen.
EXTRA_TARGET = ["Größe über Straße, schöne Füße.", "日本語のテキスト"] * 20


def train_unigram(lines: list[str], size: int) -> bytes:
    """A SentencePiece model like those that `spm_train` makes by default."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines),
        model_writer=model,
        vocab_size=size,
        model_type="unigram",
        character_coverage=1.0,
        hard_vocab_limit=False,
        minloglevel=2,
    )
    return model.getvalue()


def pieces_of(model: bytes) -> list[str]:
    """All pieces but the special ones."""
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    return [processor.id_to_piece(i) for i in range(3, processor.vocab_size())]


@functools.cache
def trained_models() -> dict[str, bytes]:
    """The SentencePiece models of both sides."""
    english, german = zip(*builtin.pairs(400), strict=True)
    return {
        "source": train_unigram([*english, *EXTRA_SOURCE], 150),
        "target": train_unigram([*german, *EXTRA_TARGET], 150),
    }


def write_vocabulary(folder: Path) -> dict[str, int]:
    """Writes source.spm, target.spm and a vocab.json that lacks some pieces of the source."""
    models = trained_models()
    for side, model in models.items():
        (folder / f"{side}.spm").write_bytes(model)
    source, target = (pieces_of(model) for model in models.values())
    alone = [piece for piece in source if piece not in target]
    pieces = set(source) - set(alone[::7]) | set(target)
    names = ["</s>", "<unk>", *LANGUAGES, *sorted(pieces), "<pad>"]
    vocabulary = {name: i for i, name in enumerate(names)}
    (folder / "vocab.json").write_text(json.dumps(vocabulary), "utf-8")
    return vocabulary


def config_of(pieces: int, **changes) -> dict:
    """The config.json of an OPUS-MT model, except for the sizes."""
    sizes = {
        f"{side}_{name}": value
        for side in ("encoder", "decoder")
        for name, value in (("layers", LAYERS), ("attention_heads", HEADS), ("ffn_dim", F))
    }
    return sizes | {
        "model_type": "marian",
        "architectures": ["MarianMTModel"],
        "activation_function": "swish",
        "add_bias_logits": False,
        "add_final_layer_norm": False,
        "bos_token_id": 0,
        "d_model": D,
        "decoder_start_token_id": pieces - 1,
        "decoder_vocab_size": pieces,
        "dropout": 0.1,
        "eos_token_id": 0,
        "is_encoder_decoder": True,
        "max_position_embeddings": 64,
        "normalize_before": False,
        "normalize_embedding": False,
        "pad_token_id": pieces - 1,
        "scale_embedding": True,
        "share_encoder_decoder_embeddings": True,
        "static_position_embeddings": True,
        "vocab_size": pieces,
    } | changes  # fmt: skip


def random_tensors(pieces: int, decoder_layers: int) -> dict[str, np.ndarray]:
    """All tensors by Marian's names, with values that give varied translations."""
    random = np.random.default_rng(5)

    def normal(*shape: int, scale: float = 0.7) -> np.ndarray:
        return random.normal(scale=scale, size=shape).astype("float32")

    tensors = {
        "final_logits_bias": normal(1, pieces, scale=0.5),
        "model.shared.weight": normal(pieces, D, scale=0.4),
    }
    no_embeddings = {"model.shared.weight": np.zeros((1, D))}
    sinusoids = _embedded(no_embeddings, [0] * 40).astype("float32")
    tensors["model.encoder.embed_positions.weight"] = sinusoids
    for side, layers in (("encoder", LAYERS), ("decoder", decoder_layers)):
        for number in range(layers):
            layer = f"model.{side}.layers.{number}"
            attentions = ["self_attn"] + ["encoder_attn"] * (side == "decoder")
            for attention in attentions:
                for part in ("q", "k", "v", "out"):
                    tensors[f"{layer}.{attention}.{part}_proj.weight"] = normal(D, D)
                    tensors[f"{layer}.{attention}.{part}_proj.bias"] = normal(D)
            for name, rows, columns in (("fc1", F, D), ("fc2", D, F)):
                tensors[f"{layer}.{name}.weight"] = normal(rows, columns)
                tensors[f"{layer}.{name}.bias"] = normal(rows)
            for norm in (*(f"{name}_layer_norm" for name in attentions), "final_layer_norm"):
                tensors[f"{layer}.{norm}.weight"] = normal(D, scale=1.0)
                tensors[f"{layer}.{norm}.bias"] = normal(D)
    return tensors


def write_checkpoint(folder: Path, **changes) -> dict[str, np.ndarray]:
    """Writes the whole folder, with `changes` to config.json; returns the tensors."""
    from safetensors.numpy import save_file

    vocabulary = write_vocabulary(folder)
    config = config_of(len(vocabulary), **changes)
    tensors = random_tensors(len(vocabulary), config["decoder_layers"])
    (folder / "config.json").write_text(json.dumps(config))
    search = {
        "num_beams": 3,
        "max_length": 40,
        "bad_words_ids": [[len(vocabulary) - 1]],
        "forced_eos_token_id": 0,
    }
    (folder / "generation_config.json").write_text(json.dumps(search))
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return tensors


def change_json(file: Path, changes: dict) -> None:
    """Changes entries of a JSON file."""
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


# --- Marian in NumPy, one sentence at a time ---------------------------------------------


def marian_logits(tensors, source: list[int], target: list[int], swish=True) -> np.ndarray:
    """Logits [T, V] for ids without padding; the target begins with Marian's <pad>."""
    memory = _embedded(tensors, source)
    for layer in range(LAYERS):
        name = f"model.encoder.layers.{layer}"
        memory = _attended(tensors, f"{name}.self_attn", memory, memory)
        memory = _fed(tensors, name, memory, swish)
    x = _embedded(tensors, target)
    table = tensors.get("model.decoder.embed_positions.weight")
    if table is not None:
        x += table[: len(x)] - _embedded(
            {"model.shared.weight": np.zeros((1, D))}, [0] * len(x)
        )
    for layer in range(LAYERS):
        name = f"model.decoder.layers.{layer}"
        if f"{name}.fc1.weight" not in tensors:
            break
        x = _attended(tensors, f"{name}.self_attn", x, x, causal=True)
        x = _attended(tensors, f"{name}.encoder_attn", x, memory)
        x = _fed(tensors, name, x, swish)
    return x @ tensors["model.shared.weight"].T + tensors["final_logits_bias"][0]


def _embedded(tensors, ids: list[int]) -> np.ndarray:
    rows = np.float64(tensors["model.shared.weight"])[ids] * np.sqrt(D)
    for position, unit in np.ndindex(len(ids), D // 2):
        angle = position / 10000 ** (2 * unit / D)
        rows[position, unit] += np.sin(angle)
        rows[position, unit + D // 2] += np.cos(angle)
    return rows


def _dense(tensors, name: str, x) -> np.ndarray:
    return x @ np.float64(tensors[f"{name}.weight"]).T + tensors[f"{name}.bias"]


def _norm(tensors, name: str, x) -> np.ndarray:
    centred = x - x.mean(axis=-1, keepdims=True)
    normal = centred / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + 1e-5)
    return normal * tensors[f"{name}.weight"] + tensors[f"{name}.bias"]


def _attended(tensors, name: str, x, memory, causal: bool = False) -> np.ndarray:
    size = D // HEADS
    query = _dense(tensors, f"{name}.q_proj", x)
    key, value = (_dense(tensors, f"{name}.{part}_proj", memory) for part in "kv")
    heads = []
    for head in range(HEADS):
        units = slice(head * size, (head + 1) * size)
        scores = query[:, units] @ key[:, units].T / np.sqrt(size)
        if causal:
            scores[np.triu_indices(len(x), 1)] = -np.inf
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        heads.append(weights / weights.sum(axis=-1, keepdims=True) @ value[:, units])
    output = _dense(tensors, f"{name}.out_proj", np.concatenate(heads, axis=-1))
    return _norm(tensors, f"{name}_layer_norm", x + output)


def _fed(tensors, name: str, x, swish: bool) -> np.ndarray:
    inner = _dense(tensors, f"{name}.fc1", x)
    inner = inner / (1 + np.exp(-inner)) if swish else np.maximum(inner, 0)
    return _norm(tensors, f"{name}.final_layer_norm", x + _dense(tensors, f"{name}.fc2", inner))
