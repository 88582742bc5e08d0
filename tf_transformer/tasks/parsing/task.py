"""Constituency parsing (paper 6.3): turns sentences into trees; scored by bracketing F1."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import keras

from tf_transformer.base.output import NamedProgress
from tf_transformer.config import DataConfig
from tf_transformer.data.text import all_pairs, corpora
from tf_transformer.data.vocabulary import SPACE_PIECE
from tf_transformer.decoding.engine import GraphEngine
from tf_transformer.run import Run
from tf_transformer.tasks.parsing.parser import (
    Counts,
    Parser,
    TreeGrammar,
    score_parses,
)
from tf_transformer.tasks.parsing.trees import (
    LEXICON_FILE,
    Lexicon,
    Parse,
    Tree,
    normalise,
    read_linearised,
    read_treebank,
)
from tf_transformer.tasks.task import SequenceTask, write_parallel_text
from tf_transformer.training.trainer import Result

WORDS, SEQUENCES = "words", "sequences"  # the languages of the parallel text
SAMPLES, LONGEST_SAMPLE = 3, 12  # sentences, words


def dev_result(gold: Sequence[Tree], parses: Sequence[Parse]) -> Result:
    """Scores the parsed dev set by Collins's rules, and counts repairs to the output."""
    scores, counts = score_parses(gold, parses), Counts.of(parses)
    names = ("f1", "precision", "recall", "complete_match", "errors")
    metrics = {name: float(getattr(scores, name)) for name in names}
    tree = next((parse.tree for parse in parses if parse.tree), None)
    short = [
        (normalise(correct), parse)
        for correct, parse in zip(gold, parses, strict=True)
        if parse.tree and len(parse.tree.words()) <= LONGEST_SAMPLE
    ]
    return Result(
        metrics=metrics | {"well_formed": counts.well_formed, "cut": counts.cut},
        headline=f"F1 {scores.f1:.2f}",
        example=" ".join(tree.words()) if tree else "",
        lines=[
            *(f"\n  gold   {correct}\n  model  {parse}" for correct, parse in short[:SAMPLES]),
            f"\ndev F1 {scores.f1:.2f}  precision {scores.precision:.2f}  recall "
            f"{scores.recall:.2f}  complete match {scores.complete_match:.2f}  by the rules of "
            f"COLLINS.prm; {scores.valid:,} sentences, {scores.errors:,} errors left out",
            counts.summary(),
        ],
    )


class ParsingTask(SequenceTask):
    """Data, model and dev score of a parsing run."""

    vocabulary_sides = ("source",)  # brackets and tags come from `_symbols`

    @staticmethod
    def effective_data(run: Run, *, may_write: bool = True) -> DataConfig:
        """Writes the run's trees into the run as parallel text; returns the data with it.

        A tree without words becomes two blank lines.
        """
        sides = WORDS, SEQUENCES
        folder = run.data / "text"
        return write_parallel_text(
            run.config.data, folder, sides, read_linearised, may_write=may_write
        )

    def __init__(self, run: Run, progress: NamedProgress, *, may_encode: bool = True) -> None:
        super().__init__(run, progress, may_encode=may_encode)
        trees = (read_treebank(Path(name)) for name in run.config.data.valid)
        self._gold = [tree for file in trees for tree in file]
        # Each file counts once, even if it is given several times.
        prefixes = dict(zip(run.config.data.train, self.data.train, strict=True)).values()
        lexicon = Lexicon.of_sequences(all_pairs(corpora(list(prefixes), self.data)))
        self._grammar = TreeGrammar(self.tokenizer, lexicon)
        if may_encode:
            lexicon.save(run.path / LEXICON_FILE)

    def _symbols(self) -> Iterable[str]:
        """Returns the usual symbols, and all tokens of the linearised training trees."""
        tokens = {token for line in self._side_text("target") for token in line.split()}
        return {*super()._symbols(), *(f"{SPACE_PIECE}{token}" for token in tokens)}

    def evaluator(self, model: keras.Model) -> Callable[[], Result]:
        """Returns a function that parses the dev set with the model's current weights."""
        # With one stream, the last bits of the scores do not depend on the number of cores.
        engine = GraphEngine(model, self.tokenizer, streams=1)
        parser = Parser(engine, self.run.config.decoding, self._grammar)
        sentences = [words for words, _ in self.dev_pairs]
        return lambda: dev_result(self._gold, parser.parse(sentences))
