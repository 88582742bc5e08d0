#!/usr/bin/env bash
# tensorflow-text 2.21.1 (sentencepiece 0.2.3): FastSentencepieceTokenizer takes models that it
# cannot follow.
#
# Guess: the fast tokenizer gives the ids of SentencepieceTokenizer, or refuses the model.
# Behaviour: that is so for unigram models only. It accepts a BPE model without a word and cuts
# most texts into other pieces than the model's merges do. Of a model that falls back to bytes,
# it gives the unknown id for a character outside the vocabulary, which is then lost; the other
# one gives its bytes.
# Seen (made-up words; models trained on the spot):
#     holds: of 100 lines, 0 differ with a unigram model and 88 with BPE; with bytes, 'bo € bo'
#     comes back as 'bo  ⁇  bo'
set -euo pipefail
scratch=$(mktemp -d)
exec 3>&2 2>"$scratch/log"
trap '[ $? = 0 ] || tail -n 20 "$scratch/log" >&3; rm -rf "$scratch"' EXIT
unset PYTHONPATH
export CUDA_VISIBLE_DEVICES=-1 KERAS_BACKEND=tensorflow
venv=${FINDINGS_VENV:-$scratch/venv}
[ -x "$venv/bin/python" ] || python3 -m venv "$venv"
"$venv/bin/pip" install --quiet tensorflow-text==2.21.1 tensorflow==2.21.0 sentencepiece==0.2.3
cat >"$scratch/finding.py" <<'PY'
import io
import random
import sys

import sentencepiece
import tensorflow_text

draw = random.Random(1)
syllables = [consonant + vowel for consonant in "bdfgklmnprstvz" for vowel in "aeiou"]
words = ["".join(draw.choices(syllables, k=draw.randint(1, 4))) for _ in range(300)]
lines = [" ".join(draw.choices(words, k=8)) for _ in range(400)]


def tokenizers(**options):
    """Returns the plain and the fast tokenizer of a model trained on the first 300 lines."""
    file = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines[:300]), model_writer=file, hard_vocab_limit=False, **options
    )
    kinds = tensorflow_text.SentencepieceTokenizer, tensorflow_text.FastSentencepieceTokenizer
    return [kind(file.getvalue()) for kind in kinds]


def differing(**options):
    """Returns how many of the other 100 lines the two tokenizers cut differently."""
    plain, fast = (each.tokenize(lines[300:]).to_list() for each in tokenizers(**options))
    return sum(one != other for one, other in zip(plain, fast))


def there_and_back(tokenizer):
    return tokenizer.detokenize(tokenizer.tokenize("bo € bo")).numpy().decode()


unigram = differing(model_type="unigram", vocab_size=300)
bpe = differing(model_type="bpe", vocab_size=300)
options = {"model_type": "unigram", "vocab_size": 500, "byte_fallback": True}
plain, fast = map(there_and_back, tokenizers(**options))
holds = unigram == 0 and bpe > 50 and plain == "bo € bo" and "€" not in fast
print(
    "holds:" if holds else "changed:",
    f"of 100 lines, {unigram} differ with a unigram model and {bpe} with BPE;",
    f"with bytes, {plain!r} comes back as {fast!r}",
)
sys.exit(not holds)
PY
"$venv/bin/python" -I "$scratch/finding.py"
