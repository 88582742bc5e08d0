"""A parser: a translator from words to trees as sequences, trained and searched with a grammar.

A parser's folder has its `lexicon.json`, its `tokenizer.model` and the run itself, `run`.
"""

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import yaml

import tf_transformer
from experiments.common import write
from experiments.parsing.brackets import Bracketing, score_sentence, summarise
from experiments.parsing.grammar import WORD_START, Lexicon, TreeGrammar
from experiments.parsing.trees import (
    Parse,
    Tree,
    delinearise,
    linearised,
    normalise,
    read_line,
    read_treebank,
    words_of,
)
from experiments.text import shortened
from tf_transformer import Translator, UserError

WORDS, SEQUENCES = "words", "sequences"  # the languages of the parallel text
CONSTRAINTS = ("none", "words", "tags")
SAMPLES, LONGEST_SAMPLE = 3, 12  # sentences, words

Pair = tuple[str, str]  # the words and the sequence of a tree


@dataclasses.dataclass(frozen=True)
class Counts:
    """Counts of defects in the model's output, before repair."""

    sentences: int = 0  # without blank ones
    repaired: int = 0  # those whose sequence was no tree over their words
    repairs: int = 0  # in all of them
    cut: int = 0  # sentences whose sequence was cut off at the length limit

    @classmethod
    def of(cls, parses: Iterable[Parse]) -> Self:
        """Counts the parses; those of blank sentences are left out."""
        parses = [parse for parse in parses if parse.tree]
        repairs = [parse.repairs for parse in parses]
        repaired = sum(count > 0 for count in repairs)
        return cls(len(parses), repaired, sum(repairs), sum(parse.cut for parse in parses))

    def __add__(self, other: "Counts") -> "Counts":
        return Counts(*map(int.__add__, *map(dataclasses.astuple, (self, other))))

    @property
    def well_formed(self) -> float:
        """Share of sentences that needed no repair; 1 if there are no sentences."""
        return 1 - self.repaired / self.sentences if self.sentences else 1.0

    def summary(self) -> str:
        """Formats a line such as "9 sentences; well-formed: 88.9%; repaired: 1, by ..."."""
        return (
            f"{self.sentences:,} sentences; well-formed: {self.well_formed:.1%}; repaired: "
            f"{self.repaired:,}, by {self.repairs:,} changes; cut at the length limit: "
            f"{self.cut:,}"
        )


class Parser:
    """Parses by translation from sentences to linearised trees.

    `grammar` constrains the search to trees over the words; None for no constraint. `search`
    are settings of the search that replace those of the run. Raises UserError for rules of the
    search that conflict with the grammar.
    """

    def __init__(
        self,
        translator: Translator,
        grammar: TreeGrammar | None = None,
        search: Mapping[str, Any] | None = None,
    ) -> None:
        self.translator, self.grammar, self.search = translator, grammar, dict(search or {})
        if grammar:
            check_search(dataclasses.asdict(translator.decoding) | self.search)

    @classmethod
    def load(
        cls,
        folder: Path,
        *,
        constraint: str = "tags",
        checkpoint: str | None = None,
        search: Mapping[str, Any] | None = None,
    ) -> Self:
        """Loads a parser; `constraint` is one of `CONSTRAINTS`, what its search may write."""
        lexicon = None if constraint == "none" else Lexicon.load(folder / "lexicon.json")
        translator = tf_transformer.load(folder / "run", checkpoint=checkpoint)
        if lexicon is None:
            return cls(translator, None, search)
        any_tag = constraint == "words"
        return cls(
            translator, TreeGrammar(translator.tokenizer, lexicon, any_tag=any_tag), search
        )

    def parse(self, sentences: Sequence[str]) -> list[Parse]:
        """Returns the best tree of each sentence, by beam search.

        Sentences are split into words at white space; brackets in them become -LRB- and -RRB-.
        A sequence that is not a tree over the words is repaired; see `trees.delinearise`.
        """
        texts = [" ".join(words_of(sentence)) for sentence in sentences]
        rules = [self.grammar] if self.grammar else []
        return as_parses(
            texts, self.translator.translate(texts, rules=rules, **self.search) if texts else []
        )

    def score(self, sentences: Sequence[str], trees: Sequence[str]) -> list[Any]:
        """Returns given trees with their log-probabilities, as `Translator.score` does.

        Args:
            sentences: the sentences.
            trees: the tree of each in Penn brackets, whose function tags are ignored.

        Raises:
            UserError: if a tree is not well-formed, or not over the words of its sentence.
        """
        return self.translator.score(*_sequences(sentences, trees))

    def attention(self, sentences: Sequence[str], trees: Sequence[str] | None = None) -> list:
        """Returns all attention weights of one pass over each sentence and its tree.

        Without `trees` they are the model's own parses. Raises UserError as `score` does.
        """
        given = [*map(str, self.parse(sentences))] if trees is None else trees
        return self.translator.attention(*_sequences(sentences, given))


def as_parses(texts: Sequence[str], translations: Sequence[Any]) -> list[Parse]:
    """Returns the trees over the words of the texts that the translations express."""
    return [
        delinearise(best.split(), text.split(), best.is_cut) if text else Parse(None, 0)
        for text, best in zip(texts, translations, strict=True)
    ]


def check_search(settings: Mapping[str, Any]) -> None:
    """Refuses rules of the search, by name, that can forbid every continuation of a tree."""
    repeats, least = settings.get("no_repeat_ngram", 0), settings.get("min_length", 0)
    if repeats or least > 1:
        raise UserError(
            "`decoding.no_repeat_ngram` must be 0 and `decoding.min_length` at most 1 when the "
            f"search is constrained to trees. Received: {repeats} and {least}. `parse "
            "--constraint none` accepts other values."
        )


def _sequences(sentences: Sequence[str], trees: Sequence[str]) -> tuple[list[str], list[str]]:
    """Returns sentences and linearised trees in the model's input and output format."""
    texts = [" ".join(words_of(sentence)) for sentence in sentences]
    sequences = []
    for number, (text, line) in enumerate(zip(texts, trees, strict=True), start=1):
        gold = [linearised(tree) for tree in read_line(line, "trees", number)] or [("", "")]
        if len(gold) > 1 or gold[0][0] != text:
            raise UserError(
                f"Tree {number:,} must be a single tree over the words of its sentence, "
                f"{shortened(text)!r}. Received: {shortened(line)!r}."
            )
        sequences.append(gold[0][1])
    return texts, sequences


# --- Training ---------------------------------------------------------------------------------


def train(
    files: Sequence[Path],
    dev_files: Sequence[Path],
    output: Path,
    *,
    config: Path,
    settings: Mapping[str, Any],
    **options: Any,
) -> Parser:
    """Trains a parser on treebanks, or resumes its training; returns it with its best weights.

    Args:
        files: the training trees; a file that is given twice counts twice.
        dev_files: the trees whose F1 chooses the best weights.
        output: folder of the parser.
        config: file of settings, in YAML.
        settings: settings by "section.field" that replace those of the file.
        **options: of `tf_transformer.train`, such as `stop_after`.

    Raises:
        UserError: if trees or settings cannot be used, or `output` has other trees' parser.
    """
    given = _read_settings(config) | dict(settings)
    check_search({name.removeprefix("decoding."): value for name, value in given.items()})
    if given.get("data.subword_sampling"):
        raise UserError("`data.subword_sampling` must be 0: brackets have one segmentation.")
    by_file = {file: [*map(linearised, read_treebank(file))] for file in files}
    pairs = [pair for file in files for pair in by_file[file]]
    gold = [tree for file in dev_files for tree in read_treebank(file)]
    for name, those in (("training", pairs), ("dev", [*map(linearised, gold)])):
        if not any(words for words, _ in those):
            raise UserError(f"The {name} trees must have words. Received: none.")
    # Each file counts once here.
    lexicon = Lexicon.of_sequences(pair for of_one in by_file.values() for pair in of_one)
    _write_once(output / "lexicon.json", lexicon.text())
    tokenizer = Path(given.get("data.tokenizer") or output / "tokenizer.model")
    if not tokenizer.exists():
        train_tokenizer(pairs, tokenizer, given.get("model.vocab_size", 4_000))
    grammar = TreeGrammar(tf_transformer.Tokenizer(tokenizer), lexicon)
    translator = tf_transformer.train(
        config=config,
        train=_sides(pairs),
        valid=_sides(map(linearised, gold)),
        source=WORDS,
        target=SEQUENCES,
        output=output / "run",
        settings=dict(settings) | {"data.tokenizer": str(tokenizer)},
        score=f1_of(gold),
        rules=[grammar],
        **options,
    )
    return Parser(translator, grammar)


def train_tokenizer(pairs: Sequence[Pair], path: Path, vocab_size: int) -> None:
    """Trains a tokenizer on the words, in which each token of the sequences is one piece."""
    tokens = {token for _, sequence in pairs for token in sequence.split()}
    path.parent.mkdir(parents=True, exist_ok=True)
    tf_transformer.train_tokenizer(
        (words for words, _ in pairs),
        path,
        vocab_size=vocab_size,
        symbols={f"{WORD_START}{token}" for token in tokens},
    )


def f1_of(gold: Sequence[Tree]) -> Callable[..., float]:
    """Returns the dev score of `tf_transformer.train`: F1 of the parses by Collins's rules.

    It prints that and more, and a few short trees.
    """

    def f1(sources: Sequence[str], translations: Sequence[Any], references: object) -> float:
        parses = as_parses(sources, translations)
        scores = score_parses(gold, parses)
        short = [
            f"\n  gold   {normalise(correct)}\n  model  {parse}"
            for correct, parse in zip(gold, parses, strict=True)
            if parse.tree and len(parse.tree.words()) <= LONGEST_SAMPLE
        ]
        print(*short[:SAMPLES], sep="\n")
        print(
            f"\ndev F1 {scores.f1:.2f}  precision {scores.precision:.2f}  recall "
            f"{scores.recall:.2f}  complete match {scores.complete_match:.2f}  by the rules of "
            f"COLLINS.prm; {scores.valid:,} sentences, {scores.errors:,} errors left out\n"
            f"{Counts.of(parses).summary()}"
        )
        return scores.f1

    return f1


def score_parses(gold: Iterable[Tree], parses: Iterable[Parse]) -> Bracketing:
    """Scores parses against the gold trees by Collins's rules."""
    return summarise(
        score_sentence((tree,), (parse.tree,) if parse.tree else ())
        for tree, parse in zip(gold, parses, strict=True)
    )


def _sides(pairs: Iterable[Pair]) -> tuple[list[str], list[str]]:
    words, sequences = zip(*pairs, strict=True)
    return list(words), list(sequences)


def _read_settings(path: Path) -> dict[str, Any]:
    """Reads the settings of a YAML file by "section.field"; the package itself checks them."""
    try:
        content = yaml.safe_load(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise UserError(f"{path} cannot be read as YAML: {error}.") from None
    sections = content.items() if isinstance(content, dict) else ()
    return {
        f"{section}.{name}": value
        for section, values in sections
        if isinstance(values, dict)
        for name, value in values.items()
    }


def _write_once(path: Path, text: str) -> None:
    """Writes a file unless it is there; UserError if it is there with another content."""
    if path.exists() and path.read_text("utf-8") != text:
        raise UserError(
            f"{path} was made of other trees. Give the same trees to resume, or another "
            "--output."
        )
    if not path.exists():
        write(path, text)
