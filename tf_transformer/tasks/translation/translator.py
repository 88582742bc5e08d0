"""Translator that holds its model: loads, translates, aligns, shows attention and exports."""

import dataclasses
import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, Unpack, overload

import keras

from tf_transformer.config import DecodingConfig, SearchOptions
from tf_transformer.config.settings import Bounds, Setting
from tf_transformer.data.tokenizer import Tokenizer
from tf_transformer.decoding.alignment import Alignment, Attention
from tf_transformer.decoding.batches import Progress
from tf_transformer.decoding.ensemble import Ensemble, models_of, only_model
from tf_transformer.decoding.hypotheses import Translation
from tf_transformer.decoding.lite_model import LiteModel
from tf_transformer.decoding.translator import BatchTranslator
from tf_transformer.errors import UserError, quoted
from tf_transformer.models.transformer import Transformer
from tf_transformer.run import Run
from tf_transformer.serving import translations
from tf_transformer.serving.gate import Gate
from tf_transformer.serving.lite import export_lite
from tf_transformer.strings import Strings, one_or_more, pairs
from tf_transformer.tasks.models import Card, card_of, load_translator
from tf_transformer.tasks.translation.base import BaseTranslator, Call, search_options


class Translator(BaseTranslator):
    """Translates, scores and aligns with a model and its tokenizer.

    Methods that take texts return one result for a string and a list for a list.

    Args:
        model: a trained `Transformer`, or an `Ensemble` of them.
        tokenizer: the tokenizer it was trained with.
        decoding: settings of the search; the paper's by default.
        lite: a LiteRT version of the model, used for the search.
        card: creates the model card of its exports.
    """

    def __init__(
        self,
        model: Transformer | Ensemble,
        tokenizer: Tokenizer,
        decoding: DecodingConfig | None = None,
        *,
        lite: LiteModel | None = None,
        card: Card | None = None,
    ) -> None:
        self.model, self.tokenizer = model, tokenizer
        self.decoding = decoding or DecodingConfig()
        self._lite, self._card = lite, card or dict
        self._batches = functools.lru_cache(maxsize=8)(self._make_batches)

    def _make_batches(self, decoding: DecodingConfig, number: int) -> BatchTranslator:
        return BatchTranslator(self.model, self.tokenizer, decoding, number, self._lite)

    def _search(self, call: Call) -> Sequence[Sequence[Translation]]:
        decoding, sampling = search_options(call.options, self.decoding, call.sample)
        number, limit = call.number, decoding.beam_size
        if not (number >= 1 and (call.sample or number <= limit)):
            raise UserError(
                f"`n_best` must be between 1 and the beam size, {limit}. Received: {number}."
            )
        translations = self._batches(decoding, number).translate(
            call.texts, call.progress, prefixes=call.prefixes, sampling=sampling
        )
        # The search pads missing hypotheses with empty ones; a blank text has only these.
        return [
            [each for each in ranked if each.num_tokens] or ranked[:1]
            for ranked in translations
        ]

    def _score(
        self,
        sources: list[str],
        targets: list[str],
        alpha: float | None,
        progress: Progress | None,
    ) -> list[Translation]:
        options = {} if alpha is None else {"alpha": alpha}
        decoding, _ = search_options(options, self.decoding)
        return self._batches(decoding, 1).score(sources, targets, progress)

    # fmt: off
    @overload
    def align(self, source: str, target: str | None = None, *,
              layer: int | None = None) -> Alignment: ...
    @overload
    def align(self, source: Strings, target: Strings | None = None, *,
              layer: int | None = None) -> list[Alignment]: ...
    # fmt: on
    def align(self, source, target=None, *, layer=None):
        """Aligns the words of a sentence with those of its translation, by attention weights.

        Args:
            source: a sentence, or a list of them.
            target: its translation; a list for a list; None for the model's translation.
            layer: the decoder layer whose attention to use, counted from 1; by default layer
                5 of 6, or the same relative depth in other models.
        """
        if layer is not None:
            last = only_model(self.model).config.num_decoder_layers
            layer = Setting(int, Bounds(low=1, high=last)).check("layer", layer) - 1
        one, sources, targets = self._pairs(source, target)
        aligned = self._batches(self.decoding, 1).align(sources, targets, layer=layer)
        return aligned[0] if one else aligned

    # fmt: off
    @overload
    def attention(self, source: str, target: str | None = None) -> Attention: ...
    @overload
    def attention(self, source: Strings, target: Strings | None = None) -> list[Attention]: ...
    # fmt: on
    def attention(self, source, target=None):
        """Returns all attention weights of one pass over a sentence and its translation.

        Args:
            source: a sentence, or a list of them.
            target: its translation; a list for a list; None for the model's translation.
        """
        one, sources, targets = self._pairs(source, target)
        weights = self._batches(self.decoding, 1).attention(sources, targets)
        return weights[0] if one else weights

    def _pairs(self, source: Any, target: Any) -> tuple[bool, list[str], list[str]]:
        if target is not None:
            return pairs(source=source, target=target)
        one, sources = one_or_more("source", source)
        return one, sources, [*self.translate(sources)]

    def export(
        self,
        output: str | Path,
        *,
        version: int | None = None,
        text: bool = True,
        gate: Gate | None = None,
        format: Literal["savedmodel", "litert"] = "savedmodel",
        fixed_length: int | None = None,
        **options: Unpack[SearchOptions],
    ) -> Path:
        """Writes a model for TF Serving or LiteRT, after testing it; returns OUTPUT/VERSION.

        Args:
            output: the model's folder.
            version: its number; None for the next free one.
            text: whether the model takes text; otherwise token ids, as LiteRT always does.
            gate: refuses an export that is worse than the published model; see `serving.gate`.
                Not for LiteRT.
            format: "savedmodel", or "litert": see `serving.lite`.
            fixed_length: longest source in tokens, for LiteRT with fixed shapes; None for
                dynamic shapes.
            **options: search settings that replace those of `decoding`.

        Raises:
            UserError: if the export cannot be written, or fails its test.
        """
        self._check_export(text, gate, format, fixed_length)
        decoding, _ = search_options(dict(options), self.decoding)
        if fixed_length is not None:
            decoding = dataclasses.replace(decoding, max_source_length=fixed_length)
        card = self._card() | {"decoding": dataclasses.asdict(decoding)}
        if format == "litert":
            batches, fixed = self._make_batches(decoding, 1), fixed_length is not None
            return export_lite(batches, Path(output), version, card, fixed)
        batches = BatchTranslator(self.model, self.tokenizer, decoding)
        return translations.export(batches, Path(output), version, card, text=text, gate=gate)

    def _check_export(
        self, text: bool, gate: Gate | None, format: str, fixed_length: int | None
    ) -> None:
        """Refuses options that the format does not support, before any work."""
        if format not in ("savedmodel", "litert"):
            raise UserError(
                f"`format` must be savedmodel or litert. Received: {quoted(format)}."
            )
        if format == "litert" and (gate or len(models_of(self.model)) > 1):
            extra = "a gate" if gate else "an ensemble"
            raise UserError(f"LiteRT takes a single model and no gate. Received: {extra}.")
        int8 = self._lite is not None and self._lite.precision == "int8"
        if format == "savedmodel" and (int8 or fixed_length is not None):
            wrong = "int8" if int8 else "`fixed_length`"
            raise UserError(f"{wrong} needs the format litert. Received: savedmodel.")
        if self.tokenizer.tag and (format == "litert" or not text):
            raise UserError("A tag needs a SavedModel that takes text. Received: token ids.")


def load_run(
    run: Run,
    checkpoint: str | Path | None = None,
    *,
    name: str = "",
    decoding: DecodingConfig | None = None,
    litert: bool = False,
    **options: Any,
) -> Translator:
    """Loads the translator of a run.

    See `tasks.models.load_translator` for arguments and errors. `name` describes the weights in
    the card; by default the checkpoint does.
    """
    card = card_of(run, checkpoint, name, **options)
    batches = load_translator(run, checkpoint, decoding, litert=litert, **options)
    translator = Translator(
        batches.model,
        batches.tokenizer,
        batches.decoding,
        lite=batches.lite,
        card=card,
    )
    translator.bleu_tokenizer = run.config.data.bleu_tokenizer
    return translator


def load_keras_file(path: Path, tokenizer: str | Path | None = None) -> Translator:
    """Loads a .keras file of a `Transformer`.

    Args:
        path: the file.
        tokenizer: its SentencePiece model, or the run that has it; by default tokenizer.model
            beside the file.

    Raises:
        UserError: if the file does not hold such a model, or there is no tokenizer.
    """
    try:
        model = keras.saving.load_model(path, compile=False)
    except (ValueError, TypeError, OSError) as error:
        reason = str(error).splitlines()[0]
        raise UserError(f"{path} does not hold a model that Keras can load: {reason}") from None
    if not isinstance(model, Transformer):
        raise UserError(
            f"{path} must hold a Transformer. Received: a {type(model).__name__}, which only "
            "Keras can use."
        )
    file = Path(tokenizer or path.parent)
    file = file / "tokenizer.model" if file.is_dir() else file
    if not file.exists():
        raise UserError(
            f"{path} has no tokenizer beside it: expected {file}. Give `tokenizer`, a "
            "SentencePiece model or the run that has it."
        )
    return Translator(model, Tokenizer(file))
