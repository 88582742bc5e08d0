"""Greedy translation of stdin without TensorFlow, with an `export --format litert` folder."""

import json
import os
import sys

import numpy as np
import sentencepiece

try:
    from ai_edge_litert.interpreter import Interpreter
except ImportError:  # TensorFlow includes the same interpreter
    import tensorflow as tf

    Interpreter = tf.lite.Interpreter

PAD, BOS, EOS = 0, 2, 3


def size(runner, name: str, otherwise: int) -> int:
    """The last dimension of an input, which `--fixed-length` fixes in the file."""
    fixed = int(runner.get_input_details()[name]["shape_signature"][-1])
    return fixed if fixed > 0 else otherwise


def translate(encode, step, source: list[int], longest: int) -> list[int]:
    ids = np.full([1, size(encode, "source", len(source))], PAD, np.int32)
    ids[0, : len(source)] = source
    memory = encode(source=ids)
    kind = step.get_input_details()["memory_mask"]["dtype"]  # bool in exports up to 1.1.0
    mask = (ids != PAD)[:, None, None].astype(kind)
    beams = size(step, "tokens", 1)  # all of them take the same tokens: the first one counts
    columns = size(step, "ancestry", longest + 1) - 1
    # Of each layer [1, heads, rows, size], or of all in one: [1, layers, heads, rows, size].
    past = {}
    for name, array in memory.items():
        shape = [*array.shape[:-2], columns * beams, array.shape[-1]]
        past[name.replace("memory", "past")] = np.zeros(shape, np.float32)
    # Which beam each cached step belongs to: 0, the first one, or -1 for steps not cached yet.
    ancestry = np.full([1, beams, columns + 1], -1, np.int32)
    ancestry[..., -1] = np.arange(beams)
    target = [BOS]
    while len(target) < longest and target[-1] != EOS:  # at the limit only EOS is left
        position = len(target) - 1
        outputs = step(
            tokens=np.full([1, beams], target[-1], np.int32),
            position=np.array([position], np.int32),
            ancestry=ancestry,
            memory_mask=mask,
            **past,
            **memory,
        )
        column = position % columns  # with an attention window, the oldest is replaced
        rows = slice(beams * column, beams * (column + 1))
        for name, array in past.items():
            array[..., rows, :] = outputs[name.removeprefix("past_")]
        ancestry[..., column] = 0
        logits = outputs["logits"][0, 0]
        logits[[PAD, BOS] if position else [PAD, BOS, EOS]] = -np.inf  # never blank
        target.append(int(logits.argmax()))
    return target[1:]


folder = sys.argv[1]  # such as exported/phone/1
tokenizer = sentencepiece.SentencePieceProcessor(model_file=f"{folder}/tokenizer.model")
interpreter = Interpreter(f"{folder}/model.tflite", num_threads=1)
runners = [interpreter.get_signature_runner(name) for name in ("encode", "step")]
target_model = os.path.join(folder, "tokenizer.target.model")  # if each language has its own
writer = tokenizer
if os.path.exists(target_model):
    writer = sentencepiece.SentencePieceProcessor(model_file=target_model)
with open(f"{folder}/model_card.json", encoding="utf-8") as file:
    card = json.load(file)
sizes, decoding = card["sizes"], card["decoding"]
most = min(sizes["max_target_tokens"], decoding["max_length"] or sizes["max_target_tokens"])
trained = card.get("longest_source") or sizes["max_source_tokens"]  # by the longest in training
for number, line in enumerate(sys.stdin, start=1):
    source = [*tokenizer.encode(line.strip())[: sizes["max_source_tokens"] - 1], EOS]
    if len(source) > trained:
        print(f"line {number}: longer than any in training, {trained} tokens", file=sys.stderr)
    longest = min(len(source) + decoding["max_extra_length"], most)
    target = translate(*runners, source, longest) if line.strip() else []
    print(writer.decode([token for token in target if token != EOS]))
