"""Trees of a toy grammar."""

import random

_DETERMINERS, _NOUNS = ("the", "a"), ("cat", "dog", "bird", "fish")
_VERBS, _PREPOSITIONS = ("sees", "likes", "finds"), ("near", "with")


def toy_trees(number: int, seed: int = 1) -> list[str]:
    """Trees in Penn brackets, with function tags, traces and the root that GUM has."""
    rng = random.Random(seed)
    return [f"(ROOT {_sentence(rng)})" for _ in range(number)]


def _sentence(rng: random.Random) -> str:
    verb = f"(VBZ {rng.choice(_VERBS)})"
    thing = "(NP (-NONE- *T*-1))" if rng.random() < 0.1 else _noun_phrase(rng)
    return f"(S {_noun_phrase(rng, '-SBJ')} (VP {verb} {thing}) (. .))"


def _noun_phrase(rng: random.Random, function: str = "") -> str:
    words = f"(DT {rng.choice(_DETERMINERS)}) (NN {rng.choice(_NOUNS)})"
    if rng.random() < 0.7:
        return f"(NP{function} {words})"
    inner = f"(PP (IN {rng.choice(_PREPOSITIONS)}) {_noun_phrase(rng)})"
    return f"(NP{function} (NP {words}) {inner})"
