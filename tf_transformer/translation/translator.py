"""The translator: translates, scores, aligns, shows attention and exports."""

import dataclasses
import functools
import hashlib
import itertools
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Unpack, overload

from tf_transformer.base.errors import (
    Strings,
    UserError,
    one_or_more,
    pairs,
    quoted,
    strings,
)
from tf_transformer.config import SAMPLING, SEARCH, DecodingConfig, SamplingConfig
from tf_transformer.config.combinations import check
from tf_transformer.config.config import SearchOptions
from tf_transformer.config.settings import Bounds, Setting, nearest
from tf_transformer.data.documents import NO_JOIN, put_together, take_apart
from tf_transformer.decoding.interface import Engine, TranslatedText, Translation
from tf_transformer.decoding.rules import Rule, as_rules
from tf_transformer.decoding.streams import Progress
from tf_transformer.run.records import Record
from tf_transformer.terms.glossary import Glossary, as_glossary
from tf_transformer.terms.kept import translate_kept
from tf_transformer.terms.protection import Protection, Read, require_slots
from tf_transformer.terms.protection import protection as as_protection

if TYPE_CHECKING:  # TensorFlow, Keras and sacreBLEU, imported where they are needed
    import keras

    from tf_transformer.data.tokenizer import Tokenizer
    from tf_transformer.decoding.attention import Alignment, Attention
    from tf_transformer.decoding.engine import GraphEngine
    from tf_transformer.decoding.text_codec import TextCodec
    from tf_transformer.evaluation import Scores
    from tf_transformer.export.publishing import Gate
    from tf_transformer.models.ensemble import Ensemble
    from tf_transformer.models.transformer import Transformer
    from tf_transformer.translation.files.translate_file import FileReport

logger = logging.getLogger(__name__)

_SEVERAL_LINES = (
    "texts of several lines, each read as one sentence: %d; `translate_text` takes documents"
)


class TranslationOptions(SearchOptions, total=False):
    """Options of `Translator.translate`, besides those that say what it returns."""

    sample: bool
    word_probs: bool
    progress: Progress | None
    protect: str | Path | Protection | None
    glossary: Mapping[str, str] | str | Path | Glossary | None
    rules: Sequence[Rule]


class Translator:
    """Translates, scores and aligns with a model and its tokenizer, or with an export.

    Methods that take texts return one result for a string and a list for a list. The
    translations are of type `Translation`: a `str` with `score`, `log_prob` and `num_tokens`.

    Args:
        model: a trained `Transformer`, or an `Ensemble` of them.
        tokenizer: the tokenizer it was trained with, or the path of its file.
        decoding: settings of the search; the paper's by default.
        engine: computes in place of model and tokenizer: a `LiteEngine` or an `ExportEngine`.
        card: creates the model card of its exports.
        bleu_tokenizer: sacreBLEU's tokeniser, the default of `evaluate`.
        language: code of the source language, the default of `translate_text`.
        joins: whether the model has learned to translate several sentences at once.
        target_language: code of the target language, for files that name it.
        protection: what `translate` keeps unchanged by default; None for addresses, numbers
            and so on, if the model has slots.
        history: reads the evaluations of its training, oldest first; none by default.

    Attributes:
        decoding: the settings of the search, a `DecodingConfig`.

    Example:
        >>> import tf_transformer
        >>> translator = tf_transformer.load("runs/mine")
        >>> translator.translate(["Good morning.", "Thank you."])
        ['...', '...']
        >>> best, second = translator.translate("Good morning.", n_best=2)
        >>> best.score >= second.score
        True
    """

    def __init__(
        self,
        model: "Transformer | Ensemble | None" = None,
        tokenizer: "Tokenizer | str | Path | None" = None,
        decoding: DecodingConfig | None = None,
        *,
        engine: Engine | None = None,
        card: Callable[[], dict[str, Any]] | None = None,
        bleu_tokenizer: str = "13a",
        language: str = "",
        joins: bool = True,
        target_language: str = "",
        protection: Protection | None = None,
        history: Callable[[], list[Record]] = list,
    ) -> None:
        if engine is None:
            if model is None or tokenizer is None:
                raise TypeError("`Translator` needs `model` and `tokenizer`, or `engine`.")
            from tf_transformer.data.tokenizer import Tokenizer
            from tf_transformer.decoding.engine import GraphEngine

            if isinstance(tokenizer, str | Path):
                tokenizer = Tokenizer(tokenizer)
            engine = GraphEngine(model, tokenizer)
        self.engine, self.decoding = engine, decoding or DecodingConfig()
        self.bleu_tokenizer, self._card = bleu_tokenizer, card or dict
        self.language, self.joins = language, joins
        self.target_language = target_language
        self._read_history = history
        usual = Protection() if self.engine.has_slots else Protection(())
        self.protection = usual if protection is None else protection

    def __repr__(self) -> str:
        search = f"beam_size={self.decoding.beam_size}, alpha={self.decoding.alpha:g}"
        return f"<Translator: {self.engine!r}, {search}>"

    @property
    def history(self) -> list[Record]:
        """Returns the evaluations of training, oldest first, as in metrics.jsonl."""
        return self._read_history()

    @property
    def model(self) -> "Transformer | Ensemble":
        """The model; UserError for an export, which holds only its graph."""
        return self._graph("give its model").model

    @property
    def tokenizer(self) -> "Tokenizer":
        """The tokenizer, in Python for an export for LiteRT; UserError for another export."""
        return self._of_text("give its tokenizer").tokenizer

    @property
    def encoder(self) -> "keras.Model":
        """A Keras model of the encoder with the embedding: ids [B, S] -> outputs [B, S, D].

        It shares its weights with `model`, so that what trains one changes the other. Ids end
        with EOS, 0 is padding. UserError for an export, ValueError for an ensemble.
        """
        import keras

        from tf_transformer.models.ensemble import only_model

        model = only_model(self.model)
        return keras.Model(model.input["source"], model.encoder.output, name="encoder")

    @property
    def codec(self) -> "TextCodec":
        """Text to ids and back, within the limits of `decoding`; UserError for a SavedModel."""
        return self._of_text("give its limits").codec(self.decoding)

    def _graph(self, what: str) -> "GraphEngine":
        """Returns the engine of the model itself, which `what` needs."""
        if not self.engine.graph:
            self.engine.refuse(what)
        return self.engine.graph

    def _of_text(self, what: str) -> Any:
        """Returns the engine if it encodes text in Python, which `what` needs."""
        if not hasattr(self.engine, "tokenizer"):
            self.engine.refuse(what)
        return self.engine

    # fmt: off
    @overload
    def translate(self, texts: str, *, n_best: None = None, prefix: str | None = None,
                  **options: Unpack[TranslationOptions]) -> Translation: ...
    @overload
    def translate(self, texts: str, *, n_best: int, prefix: str | None = None,
                  **options: Unpack[TranslationOptions]) -> list[Translation]: ...
    @overload
    def translate(self, texts: Strings, *, n_best: None = None, prefix: Strings | None = None,
                  **options: Unpack[TranslationOptions]) -> list[Translation]: ...
    @overload
    def translate(self, texts: Strings, *, n_best: int, prefix: Strings | None = None,
                  **options: Unpack[TranslationOptions]) -> list[list[Translation]]: ...
    # fmt: on
    def translate(
        self, texts, *, n_best=None, prefix=None, sample=False, word_probs=False,
        progress=None, protect=None, glossary=None, rules=(), **options: Unpack[SearchOptions]
    ):  # fmt: skip
        """Translates a sentence, or a list of sentences.

        A model trained with `data.slots` keeps addresses, placeholders, tags, code, @names and
        numbers as they are, each once, and translates the terms of a glossary as it says.

        Args:
            texts: a string, or a list of strings; each is translated as one sentence.
            n_best: number of translations of each sentence, best first; None returns only the
                best, not in a list.
            prefix: forced beginning of the translation, "" for none; a list for a list.
            sample: draw translations instead of searching for the best.
            word_probs: score the translations for the probabilities of their words.
            progress: called with the number of sentences done so far.
            protect: what to keep: "default", "none", or a file of regular expressions, one a
                line, where `default` stands for the kinds above; a `Protection`; None for
                `protection`.
            glossary: terms and their translations, a dictionary or a table of two columns.
            rules: your own rules of the search, a list of `tf_transformer.Rule`; not for an
                export.
            **options: search settings that replace those of `decoding`: `beam_size`, `alpha`
                (exponent of the length penalty), `max_length`, `min_length`,
                `no_repeat_ngram`, `lookahead`, `max_extra_length`, `max_source_length`,
                `batch_tokens` and `jit_compile` (whether XLA compiles steps; experimental);
                with `sample`, `temperature`, `top_k`, `top_p` and `seed`. An export can change
                only `alpha` and `max_length`.

        Returns:
            A `Translation`; a list of them for a list of texts or with `n_best`; a list of
            lists with both.

        Raises:
            TypeError: if the texts are neither a string nor a list of strings.
            UserError: if there is no such option, a value is out of range, `rules` holds
                anything else, or the engine cannot search so.
        """
        one, sources = one_or_more("texts", texts)
        if count := sum("\n" in text.strip() for text in sources):
            logger.warning(_SEVERAL_LINES, count)
        prefixes = None
        if prefix is not None:
            one, sources, prefixes = pairs(texts=texts, prefix=prefix)
        own = ("n_best", "prefix", "sample", "word_probs", "progress", "rules")
        decoding, sampling = search_settings(options, self.decoding, sample, own)
        number = 1 if n_best is None else Setting(int).check("n_best", n_best)
        if number < 1 or (number > decoding.beam_size and not sample):
            raise UserError(
                f"`n_best` must be between 1 and the beam size, {decoding.beam_size}. "
                f"Received: {number}."
            )
        if word_probs and not self.engine.gives_word_probs:
            self.engine.refuse("give the probabilities of words")
        user_rules = as_rules(rules)

        def search(
            rows: Sequence[int], texts: list[str], begins: list[str], several: bool
        ) -> list[list[Translation]]:
            more = decoding.beam_size if several and not sample else number
            return self.engine.translate(
                texts, decoding, max(number, more), sampling=sampling, rules=user_rules,
                prefixes=None if prefixes is None else begins,
                rule_texts=[sources[row] for row in rows], progress=progress,
            )  # fmt: skip

        kept = self.kept(protect, glossary)
        found = translate_kept(sources, kept, self.engine, search, decoding, number, prefixes)
        for line in found.notes:
            logger.warning(line)
        if word_probs:
            self.engine.add_word_probs(sources, found.filled, decoding, kept)
        results = [best for best, *_ in found.filled] if n_best is None else found.filled
        return results[0] if one else results

    def kept(
        self,
        protect: str | Path | Protection | None = None,
        glossary: Mapping[str, str] | str | Path | Glossary | None = None,
    ) -> Protection:
        """Returns what to keep in texts; see `translate` for the arguments.

        Raises UserError if the model cannot keep them.
        """
        require_slots(self.engine.has_slots, protect, glossary, self.engine.aligns)
        chosen = self.protection if protect is None else as_protection(protect)
        if glossary is not None:
            chosen = dataclasses.replace(chosen, glossary=as_glossary(glossary))
        return dataclasses.replace(chosen, symbols=self.engine.symbols)

    # fmt: off
    @overload
    def translate_text(self, texts: str, *, language: str | None = None, context: int = 1,
                       **options: Unpack[TranslationOptions]) -> TranslatedText: ...
    @overload
    def translate_text(self, texts: Strings, *, language: str | None = None, context: int = 1,
                       **options: Unpack[TranslationOptions]) -> list[TranslatedText]: ...
    # fmt: on
    def translate_text(
        self, texts, *, language=None, context=1, **options: Unpack[TranslationOptions]
    ):
        """Translates a document, or a list of documents, sentence by sentence.

        Lines, space, marks of lists, code between fences, and lone addresses and numbers stay
        as they are; every line is taken by itself. All sentences are translated at once.

        Args:
            texts: a string, or a list of strings.
            language: code of the source language; None for that of the model.
            context: sentences of a line to translate together, for a model trained with the
                setting `data.join`.
            **options: those of `translate`, but for `n_best` and `prefix`.

        Returns:
            The document with its sentences translated, a `str` whose `sentences` are pairs of
            source and `Translation`; a list for a list.

        Raises:
            TypeError: if the texts are neither a string nor a list of strings.
            UserError: as `translate` does, and if the language is unknown.
        """
        one, texts = one_or_more("texts", texts)
        together = Setting(int, Bounds(low=1)).check("context", context)
        if together > 1 and not self.joins:
            logger.warning(NO_JOIN)
        documents = [take_apart(text, language or self.language, together) for text in texts]
        sources = [[part.text for part in parts if part.is_sentence] for parts in documents]
        flat = list(itertools.chain.from_iterable(sources))
        rest = iter(self.translate(flat, n_best=None, prefix=None, **options))
        results = []
        for parts, sentences in zip(documents, sources, strict=True):
            found = list(itertools.islice(rest, len(sentences)))
            result = TranslatedText("".join(text for _, text in put_together(parts, found)))
            result.sentences = list(zip(sentences, found, strict=True))
            results.append(result)
        return results[0] if one else results

    def translate_file(
        self, source: str | Path, output: str | Path, *, language=None, fuzzy=False,
        progress=None, protect=None, glossary=None, **options: Unpack[SearchOptions],
    ) -> "FileReport":  # fmt: skip
        """Translates a file of PO, XLIFF, TMX, SubRip, WebVTT or HTML: docs/guides/files.md.

        Work that was interrupted goes on, if the model and all settings are the same.

        Args:
            source: the file, whose suffix tells its format.
            output: the file to write.
            language: code of the source language; None for that of the model.
            fuzzy: whether to mark the translations of a PO file as fuzzy.
            progress: called with the numbers of texts done, and of all.
            protect: see `translate`.
            glossary: see `translate`.
            **options: settings of the search, as of `translate`.

        Raises:
            UserError: if the file cannot be read, names other languages, or the extra `files`
                is missing.
        """
        from tf_transformer.translation.files.translate_file import searcher, translate_file

        kept, has_slots = self.kept(protect, glossary), self.engine.has_slots
        if protect is None and not has_slots and self.engine.aligns:
            kept = self.kept("default")
        can_keep = has_slots or self.engine.aligns
        search = functools.partial(self.translate_text, language=language, **options)
        settings = dataclasses.asdict(self.decoding) | options
        for name in [name for name, it in SEARCH.items() if it.same_results]:
            settings.pop(name, None)
        names = (language or self.language, self.target_language)
        facts = [self.engine.fingerprint(), names, settings, kept.identity()]
        origin = hashlib.sha256(json.dumps(facts, sort_keys=True, default=str).encode())
        return translate_file(
            Path(source), Path(output), searcher(search, kept, can_keep), names,
            numbers=has_slots, fuzzy=fuzzy, origin=origin.hexdigest(), progress=progress,
        )  # fmt: skip

    # fmt: off
    @overload
    def fits(self, sources: str, targets: str) -> bool: ...
    @overload
    def fits(self, sources: Strings, targets: Strings) -> list[bool]: ...
    # fmt: on
    def fits(self, sources, targets):
        """Tells whether no length limit cuts a pair: what `score` and a study can take whole.

        Limits are `decoding`'s max_source_length, which with max_extra_length is that of
        targets, and where learned positions end.

        Args:
            sources: a sentence, or a list of them.
            targets: its translation; a list for a list.

        Returns:
            True or False; a list for a list.

        Example:
            >>> translator.fits(["Good morning.", "Yes. " * 9999], ["Guten Morgen.", "Ja."])
            [True, False]
        """
        one, sources, targets = pairs(sources=sources, targets=targets)
        codec = self.codec
        both = zip(codec.fits(sources), codec.fits(targets, "target"), strict=True)
        found = [source and target for source, target in both]
        return found[0] if one else found

    # fmt: off
    @overload
    def score(self, source: str, target: str, *, alpha: float | None = None,
              progress: Progress | None = None,
              protect: str | Path | Protection | None = None) -> Translation: ...
    @overload
    def score(self, source: Strings, target: Strings, *, alpha: float | None = None,
              progress: Progress | None = None,
              protect: str | Path | Protection | None = None) -> list[Translation]: ...
    # fmt: on
    def score(self, source, target, *, alpha=None, progress=None, protect=None):
        """Returns given translations with their log-probabilities.

        Tags count nothing, and other spans are as `translate` keeps them, so that a translation
        has the number that `translate` gives it.

        Args:
            source: a sentence, or a list of them.
            target: its translation; a list for a list.
            alpha: exponent of the length penalty; None for that of `decoding`.
            progress: called with the number of sentences done so far.
            protect: what was kept, as of `translate`.

        Returns:
            The target as a `Translation`; a list for a list.
        """
        one, sources, targets = pairs(source=source, target=target)
        options = {} if alpha is None else {"alpha": alpha}
        decoding, _ = search_settings(options, self.decoding)
        kept = self.kept(protect)
        scored = self.engine.score_kept(sources, targets, decoding, kept, progress)
        return scored[0] if one else scored

    def evaluate(
        self,
        source: Strings,
        *references: Strings,
        lowercase: bool = False,
        tokenize: str | None = None,
        **options: Unpack[TranslationOptions],
    ) -> "Scores":
        """Translates sentences and scores the translations.

        Args:
            source: the sentences.
            *references: one or more sets of references, each with one per sentence.
            lowercase: whether to ignore case.
            tokenize: sacreBLEU's tokeniser; "none" for text that is already tokenised; None for
                the setting data.bleu_tokenizer of the run or export, or 13a without one; 13a
                is replaced for text without blanks between words.
            **options: those of `translate`, but for `n_best` and `prefix`.

        Raises:
            ValueError: if `source` and `references` differ in length or are empty.
        """
        from tf_transformer.evaluation import score_translations, tokenizer_for

        sources = strings("source", source)
        sets = [strings("references", each) for each in references]
        counts = [len(each) for each in (sources, *sets)]
        if not (sources and sets) or len({*counts}) > 1:
            raise ValueError(
                "`source` and each of `references` must have the same number of sentences, at "
                f"least one. Received: {counts}."
            )
        found = self.translate(sources, n_best=None, **options)
        tokens = tokenize or tokenizer_for(self.bleu_tokenizer, sets[0])
        return score_translations(found, *sets, lowercase=lowercase, tokenize=tokens)

    # fmt: off
    @overload
    def align(self, source: str, target: str | None = None) -> "Alignment": ...
    @overload
    def align(self, source: Strings, target: Strings | None = None) -> "list[Alignment]": ...
    # fmt: on
    def align(self, source, target=None):
        """Aligns the words of a sentence with those of its translation, by attention weights.

        Args:
            source: a sentence, or a list of them.
            target: its translation; a list for a list; None for the model's translation.
        """
        from tf_transformer.decoding.attention import Alignment

        engine = self._graph("align")
        one, sources, targets, read = self._read_pairs(source, target)
        texts = [each.source for each in read], [each.target for each in read]
        each = zip(sources, targets, read, engine.align(*texts, self.decoding), strict=True)
        found = [Alignment(s, t, r.moved(same.pairs)) for s, t, r, same in each]
        return found[0] if one else found

    # fmt: off
    @overload
    def attention(self, source: str, target: str | None = None) -> "Attention": ...
    @overload
    def attention(
        self, source: Strings, target: Strings | None = None
    ) -> "list[Attention]": ...
    # fmt: on
    def attention(self, source, target=None):
        """Returns all attention weights of one pass over a sentence and its translation.

        Args:
            source: a sentence, or a list of them.
            target: its translation; a list for a list; None for the model's translation.
        """
        engine = self._graph("show attention")
        one, *_, read = self._read_pairs(source, target)
        texts = [each.source for each in read], [each.target for each in read]
        found = engine.attention(*texts, self.decoding)
        return found[0] if one else found

    def _read_pairs(
        self, source: Any, target: Any
    ) -> tuple[bool, Sequence[str], Sequence[str], list[Read]]:
        """Returns whether it is one pair, and sources and targets as given and as read."""
        if target is None:
            one, sources = one_or_more("source", source)
            targets: list[str] = [*self.translate(sources)]
        else:
            one, sources, targets = pairs(source=source, target=target)
        read = self.kept().all_as_read(sources, targets, self.engine.has_slots)
        return one, sources, targets, read

    def export(
        self,
        output: str | Path,
        *,
        version: int | None = None,
        text: bool = True,
        gate: "Gate | None" = None,
        format: Literal["savedmodel", "litert"] = "savedmodel",
        fixed_length: int | None = None,
        **options: Unpack[SearchOptions],
    ) -> Path:
        """Writes a model for TF Serving or LiteRT, after testing it; returns OUTPUT/VERSION.

        Args:
            output: the model's folder.
            version: its number; None for the next free one.
            text: whether the model takes text; otherwise token ids, as LiteRT always does.
            gate: refuses an export that is worse than the published model.
                Not for LiteRT.
            format: "savedmodel", or "litert": see docs/guides/exporting.md.
            fixed_length: longest source in tokens, for LiteRT with fixed shapes; None for
                dynamic shapes.
            **options: search settings that replace those of `decoding`, without `jit_compile`.

        Raises:
            UserError: if the export cannot be written, or fails its test.
        """
        engine = self._graph("be exported")

        from tf_transformer.export.publishing import check_export, publish
        from tf_transformer.export.signatures import exportable
        from tf_transformer.litert.file import export_lite

        precision = getattr(getattr(self.engine, "interpreters", None), "precision", "")
        check_export(engine, precision == "int8", text, gate, format, fixed_length)
        if options.get("jit_compile"):
            logger.warning("`jit_compile` has no effect on an export, which is free of XLA")
        decoding, _ = search_settings(options, self.decoding)
        if fixed_length is not None:
            decoding = dataclasses.replace(decoding, max_source_length=fixed_length)
        card = self._card() | {"decoding": dataclasses.asdict(decoding)}
        folder = Path(output)
        if format == "litert":
            fixed = fixed_length is not None
            return export_lite(self.engine, decoding, folder, version, card, fixed)
        # The self-test is of TensorFlow, not of LiteRT, and quiet about long texts.
        searched = dataclasses.replace(self.decoding, jit_compile=False)  # as in the export
        # An export takes texts that have slots already.
        kept = Protection(())
        plain = Translator(engine.model, engine.tokenizer, searched, protection=kept)
        return publish(exportable(plain, options, text), folder, version, card, gate=gate)


def search_settings(
    options: Mapping[str, Any],
    decoding: DecodingConfig,
    sample: bool = False,
    own: Sequence[str] = (),
) -> tuple[DecodingConfig, SamplingConfig | None]:
    """Returns `decoding` with `options` applied and, with `sample`, the sampling settings.

    `own` are the other arguments of the caller, which may have been meant. Raises UserError if
    there is no such option, a value is out of range, or options do not combine.
    """
    known = SEARCH | SAMPLING
    if unknown := next((name for name in options if name not in known), ""):
        raise UserError(
            f"There is no option {quoted(unknown)}.{nearest(unknown, [*own, *known])}"
        )
    values = {name: known[name].check(name, value) for name, value in options.items()}
    sampling = {name: value for name, value in values.items() if name in SAMPLING}
    check(values | ({"sample": True} if sample else {}))
    search = {name: value for name, value in values.items() if name in SEARCH}
    decoding = dataclasses.replace(decoding, **search)
    return decoding, SamplingConfig(**sampling) if sample else None
