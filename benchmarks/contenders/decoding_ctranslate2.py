"""CTranslate2 with the same weights, converted to int8 on loading if requested."""

import os

import ctranslate2
from harness.child import serve
from harness.sentences import EOS, Work


def setup(work: str, precision: str, streams: int = 1) -> dict:
    """Args:
    work: the folder of the work.
    precision: CTranslate2's compute type, such as "int8".
    streams: parts of a batch computed at the same time.
    """
    given = Work(work)
    pieces = given.pieces()
    ids = {piece: index for index, piece in enumerate(pieces)}
    translator = ctranslate2.Translator(
        str(given.folder / "ct2"),
        compute_type=precision,
        inter_threads=streams,
        intra_threads=int(os.environ["OMP_NUM_THREADS"]),
    )

    def hypotheses(rows, beam: int, forced: int, **options) -> list:
        """Returns the ids of each sentence's hypotheses, without EOS."""
        tokens = [[pieces[index] for index in row] for row in rows]
        options |= _limits(rows, forced) | {"beam_size": beam, "max_batch_size": 0}
        if streams > 1 and len(rows) > 1:
            options["max_batch_size"] = -(-len(rows) // streams)
        outputs = translator.translate_batch(tokens, **options)
        return [[[ids[piece] for piece in each] for each in one.hypotheses] for one in outputs]

    def search(rows, beam: int, forced: int):
        outputs = hypotheses(rows, beam, forced, length_penalty=0.6)
        # A generated EOS counts as a token, as in the package.
        return [best if forced else [*best, EOS] for best, *_ in outputs]

    def measured(batch: int, beam: int, forced: int, batches: int) -> dict:
        return given.decode(lambda rows: search(rows, beam, forced), batch, batches)

    def check(batch: int, beam: int, forced: int) -> dict:
        """Returns the hypotheses among which ours should be.

        With forced lengths the package's last token is EOS, so its output without EOS should be
        any of the hypotheses that are one token shorter.
        """
        (rows,) = given.batches(batch, 1)
        options = {"length_penalty": 0.0, "num_hypotheses": beam if forced else 1}
        length = forced and forced - 1
        return {"hypotheses": hypotheses(rows, beam, length, **options)}

    return {"work": measured, "check": check}


def _limits(rows, forced: int) -> dict[str, int]:
    """Returns the length limits of the output: the package's, or exactly `forced`."""
    if forced:
        return {"min_decoding_length": forced, "max_decoding_length": forced}
    return {"max_decoding_length": max(map(len, rows)) + 1 + 50}


if __name__ == "__main__":
    serve(setup, "ctranslate2")
