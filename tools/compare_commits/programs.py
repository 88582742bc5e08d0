"""The programs whose results are compared: `MAKE` writes runs and models, `USE` reads them."""

import random
from pathlib import Path

from tools.compare_commits.trees import Program

NOUNS = ("cat", "dog", "bird", "fish")
# English as in the built-in corpus, and other text.
SOURCE = """\
The old man sees a red house.
Today is November 9, 1972.

His apple costs 9.99 euros, because it is small and he has waited in Berlin for two hours.
中文 🙂 and a  double space
"""
TARGET = """\
Der alte Mann sieht ein rotes Haus.
Heute ist der 9. November 1972.

Sein Apfel kostet 9,99 Euro.
中文
"""


def write_texts(folder: Path) -> None:
    """Writes train.* and dev.*, and in.en with its translation in.de."""
    (folder / "in.en").write_text(SOURCE, "utf-8")
    (folder / "in.de").write_text(TARGET, "utf-8")
    for name, number, seed in (("train", 300, 1), ("dev", 12, 2)):
        rng = random.Random(seed)
        sentences = [_sentence(rng) for _ in range(number)]
        reverse = [" ".join(reversed(sentence.split())) for sentence in sentences]
        for ending, lines in {"ab": sentences, "ba": reverse}.items():
            text = "".join(f"{line}\n" for line in lines)
            (folder / f"{name}.{ending}").write_text(text, "utf-8")


def _sentence(rng: random.Random) -> str:
    verb = rng.choice(("sees", "likes", "finds"))
    return f"{_noun_phrase(rng)} {verb} {_noun_phrase(rng)} ."


def _noun_phrase(rng: random.Random) -> str:
    words = f"{rng.choice(('the', 'a'))} {rng.choice(NOUNS)}"
    if rng.random() < 0.7:
        return words
    return f"{words} {rng.choice(('near', 'with'))} {_noun_phrase(rng)}"


_SETTINGS = {
    "model.num_layers": 1,
    "model.d_model": 32,
    "model.d_ff": 64,
    "training.steps": 30,
    "training.evaluate_every": 15,
    "training.batch_tokens": 512,
    "training.warmup_steps": 10,
    "training.average_last": 2,
    "decoding.beam_size": 2,
    "decoding.max_extra_length": 4,
}


def _train(name: str, *options: str, output: str = "", **settings: object) -> Program:
    """Returns a training program; names in `settings` have "__" in place of the dot."""
    values = _SETTINGS | {key.replace("__", "."): value for key, value in settings.items()}
    words = [word for key, value in values.items() for word in ("--set", f"{key}={value}")]
    where = ("--output", output or f"runs/{name}")
    return Program(f"train {name}", ("train.py", *options, *where, *words), kept=False)


def _translation(**settings: object) -> Program:
    """Returns a training on the built-in corpus that accumulates gradients."""
    return _train("translation", "--max-tokens-per-device", "200", **settings)


def _variant(**settings: object) -> Program:
    """Returns a training of a model with features that the paper's model lacks."""
    pairs = ("--train", "train", "--valid", "dev", "--source", "ab", "--target", "ba")
    return _train(
        "variant",
        *pairs,
        model__vocab_size=300,
        model__tie_embeddings="false",
        model__norm_first="true",
        model__positions="learned",
        training__precision="mixed_bfloat16",
        training__ema_decay=0.9,
        training__clip_norm=1,
        training__label_smoothing=0.2,
        **settings,
    )


def _command(name: str, line: str, stdin: str = SOURCE) -> Program:
    return Program(name, ("tf-transformer", *line.split()), stdin)


def _experiment(name: str, options: str) -> Program:
    text = "runs/variant --source dev.ab --reference dev.ba"
    return Program(name, (f"experiments.{name}", *text.split(), *options.split()))


MAKE = (
    _translation(),
    _variant(),
    Program("export", ("export.py", "runs/translation", "--output", "exported"), kept=False),
    Program("fit", ("notebook.py", "fit"), kept=False),
)

_TRANSLATE = "translate runs/translation --checkpoint"
USE = (
    _command("average", "average runs/translation --last 2"),
    _command("translate, beam 1", f"{_TRANSLATE} last --beam 1"),
    _command("translate, beam 4", f"{_TRANSLATE} average --beam 4 --alpha 1 --n-best 3"),
    _command("translate, sampled", f"{_TRANSLATE} best --sample --seed 3 --n-best 2"),
    _command(
        "translate, variant", "translate runs/variant --n-best 2", "the cat sees a dog .\n"
    ),
    _command("evaluate", "evaluate runs/translation --source in.en --reference in.de"),
    _command("score", "score runs/translation --source in.en --target in.de"),
    Program("SavedModel", ("saved_model.py", "exported/1")),
    Program("serve SavedModel", ("ask_server.py", "tf-transformer", "serve", "exported")),
    Program("serve run", ("ask_server.py", "tf-transformer", "serve", "runs/translation")),
    Program("load_model", ("notebook.py", "load")),
    _experiment("heads", "--no-bleu --output heads"),
    _experiment("lengths", "--width 4 --least 3"),
    _translation(training__steps=34, output="resumed/translation"),
    _variant(training__steps=34, output="resumed/variant"),
)
RESUMED = ("translation", "variant")  # copies of runs that `USE` resumes
