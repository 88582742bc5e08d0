"""Runs `fit` or `decode` for each line of stdin, and prints wall and CPU seconds per step."""

import json
import sys
import time

import keras
import numpy as np
import tensorflow as tf
import tensorflow_text  # noqa: F401 (the operations of SentencePiece)

from tf_transformer import LabelSmoothedCrossEntropy, Transformer, TransformerSchedule

TRAINING_STEPS, DECODING_STEPS = 12, 40  # the export's --min-length and --max-length

keras.utils.set_random_seed(1)
model = Transformer(vocab_size=1_000, num_layers=2, d_model=128, d_ff=512, num_heads=4)
optimizer = keras.optimizers.Adam(TransformerSchedule(128))
model.compile(optimizer, LabelSmoothedCrossEntropy(0.1))
ids = np.random.default_rng(1).integers(4, 1_000, (64, 32), dtype="int32")
batch = ({"source": ids, "target": ids}, ids)
data = tf.data.Dataset.from_tensors(batch).repeat(TRAINING_STEPS)
exported = tf.saved_model.load(sys.argv[1])
texts = tf.constant(["The old man sees a red house."] * 16)
work = {
    "fit": lambda: (model.fit(data, verbose=0), TRAINING_STEPS),
    "decode": lambda: (exported.signatures["serving_default"](text=texts), DECODING_STEPS),
}
for line in sys.stdin:
    began, cpu_began = time.perf_counter(), time.process_time()
    _, steps = work[line.strip()]()
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu_began
    print(json.dumps([seconds / steps, cpu / steps]), flush=True)
