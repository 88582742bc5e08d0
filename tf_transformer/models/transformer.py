"""The Transformer as a functional Keras model (paper 3, Figure 1)."""

import dataclasses
from itertools import islice
from typing import Any, Self, Unpack

import keras
from keras import ops

from tf_transformer.config import Config, ModelConfig
from tf_transformer.fast.keras_hooks import sublayers
from tf_transformer.layers import Decoder, Encoder, PositionalEmbedding, padding_mask
from tf_transformer.layers.block import BlockArguments, BlockOptions, Stack
from tf_transformer.layers.embedding import OutputProjection
from tf_transformer.models.cached_decoding import (
    DecodingStep,
    StepProgram,
    initial_cache,
    padded_to_few_lengths,
)
from tf_transformer.models.token_model import TokenModel


@keras.saving.register_keras_serializable(package="tf_transformer")
class Transformer(TokenModel):
    """Transformer that maps source and target ids to logits of the next target token.

    Inputs are {"source": [B, S], "target": [B, T]}, integer ids with 0 for padding; the output
    is float32 logits [B, T, V] for the token that follows each target position. Feed the target
    shifted right: BOS first, without its last token. The labels are the target with EOS. The
    defaults are the paper's base model.

    Args:
        vocab_size: V, the number of word pieces, shared by source and target.
        num_layers: N, layers in the encoder, and in the decoder by default.
        decoder_layers: layers in the decoder; num_layers if None.
        d_model: D, the width of every sublayer's output; even.
        d_ff: F, the inner width of the feed-forward networks.
        num_heads: H, attention heads per sublayer.
        tie_embeddings: one matrix for both embeddings and the output projection (paper 3.4).
        max_length: longest input if positions are learned.
        source_positions: learned positions that sources have trained, set by training;
            max_length if None.
        target_positions: learned positions that targets have trained, set by training;
            max_length if None.
        output_bias: a bias added to the logits; the paper has none.
        dtype: policy of all layers; Keras's global policy if None.
        name: as in any Keras model.
        trainable: as in any Keras model.
        **options: the other `BlockOptions`, with the defaults of a run's settings: dropout is
            0.1, query_key_gain and value_gain are 2^-0.5.

    Attributes:
        config: the `ModelConfig` of these arguments.
        vocab_size: V.
        longest_source: the longest source allowed, in tokens; None for no limit.
        longest_target: the longest target allowed, in tokens; None for no limit.
        source_embedding: the embedding of sources; if tied, also `target_embedding` and
            `projection`.
        target_embedding: the embedding of targets.
        encoder: the `Encoder`.
        decoder: the `Decoder`.
        projection: the output projection.

    Its `get_config` also holds which layers are frozen and which stacks are recomputed.

    Raises:
        UserError: if a setting is out of range.

    Example:
        >>> import numpy as np
        >>> model = Transformer(vocab_size=100, num_layers=2, d_model=64, d_ff=128, num_heads=4)
        >>> ids = np.array([[5, 6, 3, 0]])
        >>> model({"source": ids, "target": ids}).shape
        TensorShape([1, 4, 100])
    """

    def __init__(
        self,
        vocab_size: int,
        *,
        num_layers: int = 6,
        decoder_layers: int | None = None,
        d_model: int = 512,
        d_ff: int = 2048,
        num_heads: int = 8,
        tie_embeddings: bool = True,
        max_length: int = 1024,
        source_positions: int | None = None,
        target_positions: int | None = None,
        output_bias: bool = False,
        dtype: str | dict | keras.DTypePolicy | None = None,
        name: str | None = None,
        trainable: bool = True,
        **options: Unpack[BlockArguments],
    ):
        others: dict[str, Any] = {**options}  # a setting has fewer activations than a layer
        config = ModelConfig(
            vocab_size=vocab_size, num_layers=num_layers, decoder_layers=decoder_layers,
            d_model=d_model, d_ff=d_ff, num_heads=num_heads, tie_embeddings=tie_embeddings,
            max_length=max_length, source_positions=source_positions,
            target_positions=target_positions, output_bias=output_bias, **others,
        )  # fmt: skip
        policy = keras.dtype_policies.get(dtype or keras.config.dtype_policy())
        names = [field.name for field in dataclasses.fields(BlockOptions)]
        block = {name: getattr(config, name) for name in names} | {"dtype": policy}
        encoder = Encoder(num_layers, **block, name="encoder")
        decoder = Decoder(config.num_decoder_layers, **block, name="decoder")
        source_embedding, target_embedding, projection = _embeddings(config, policy)

        source = keras.Input((None,), dtype="int32", name="source")
        target = keras.Input((None,), dtype="int32", name="target")
        encoder_output = encoder(source_embedding(source))
        hidden = decoder(target_embedding(target), encoder_output)
        logits = projection(hidden, reverse=True) if tie_embeddings else projection(hidden)
        inputs = {"source": source, "target": target}
        super().__init__(inputs, logits, name=name, trainable=trainable)
        self.dtype_policy = policy
        self.config = config
        self.vocab_size = vocab_size
        self.longest_source = config.longest_source
        self.longest_target = config.longest_target
        self.source_embedding = source_embedding
        self.target_embedding = target_embedding
        self.encoder = encoder
        self.decoder = decoder
        self.projection = projection
        self._step_program = StepProgram(target_embedding, decoder, projection)

    def get_config(self) -> dict[str, Any]:
        parts = sublayers(self, recursive=True)
        adapted = any(getattr(part, "lora_enabled", False) for part in parts)
        return {
            "name": self.name,
            "trainable": self.trainable,
            "dtype": keras.dtype_policies.serialize(self.dtype_policy),
            # Without adapters, a loaded model trains all of its layers again.
            "frozen": [part.path for part in parts if not (part.trainable or adapted)],
            "recompute": [part.name for part in parts if getattr(part, "recompute", False)],
        } | dataclasses.asdict(self.config)

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects=None) -> Self:
        config = dict(config)
        frozen, recompute = config.pop("frozen", ()), config.pop("recompute", ())
        model = cls(**config)
        for part in sublayers(model, recursive=True):  # outer layers first
            part.trainable = part.path not in frozen
        for name in recompute:
            model.get_layer(name).recompute = True
        return model

    def enable_lora(self, rank: int, **options: Any) -> None:
        """Adapts the kernels of encoder and decoder; freezes embeddings and norms.

        Compile the model afterwards. Saving merges the adapters into the kernels; the model is
        loaded without LoRA or frozen layers.

        What has traced the model before, such as an engine, may go on without the adapters:
        make a new one.

        Args:
            rank: rank of the adapters.
            **options: lora_alpha, a_initializer and b_initializer, as in
                `keras.layers.Dense.enable_lora`.
        """
        for layer in self.layers:
            if isinstance(layer, Stack):
                layer.enable_lora(rank, **options)
            elif not isinstance(layer, keras.layers.Dense):
                layer.trainable = False

    # --- Attention weights ---------------------------------------------------------------

    def attention_weights(self, source, target):
        """Returns the attention weights of a forward pass without dropout.

        Args:
            source: ids [B, S].
            target: ids [B, T], shifted right.

        Returns:
            A dict of weights that sum to 1 over the keys, the last axis: "encoder"
            [N, B, H, S, S], "decoder" [N, B, H, T, T] and "cross" [N, B, H, T, S], where N is
            the number of layers of encoder and decoder.
        """
        options = {"training": False, "return_attention_scores": True}
        embedded, mask = self.source_embedding(source), padding_mask(source)
        _, encoder = self.encoder(embedded, mask=mask, **options)
        decoder, cross = zip(*self._decoder_weights(source, target), strict=True)
        weights = {"encoder": encoder, "decoder": decoder, "cross": cross}
        return {name: ops.stack(layers) for name, layers in weights.items()}

    def cross_attention_weights(self, source, target, layer):
        """Returns only `attention_weights(source, target)["cross"][layer]`, [B, H, T, S].

        `layer` counts from 0. Computing the weights of all layers would cost seconds at the
        first run of a graph: TensorFlow removes unused operations one at a time.
        """
        weights = islice(self._decoder_weights(source, target), layer + 1)
        *_, (_, cross) = weights
        return cross

    def _decoder_weights(self, source, target):
        """Yields each decoder layer's attention weights in turn; a caller may stop early."""
        options = {
            "target_mask": padding_mask(target), "encoder_output_mask": padding_mask(source),
            "training": False, "return_attention_scores": True,
        }  # fmt: skip
        x, encoder_output = self.target_embedding(target), self.encode(source)
        for layer in self.decoder.layers:
            x, scores = layer(x, encoder_output, **options)
            yield scores

    # --- Cached decoding -----------------------------------------------------------------

    def encode(self, source):
        """Returns the encoder output: ids [B, S] -> [B, S, D]."""
        embedded = self.source_embedding(source)
        return self.encoder(embedded, mask=padding_mask(source), training=False)

    def initial_cache(self, source):
        """Returns the cache before the first step, of ids [B, S]; see `cached_decoding`."""
        return initial_cache(self.decoder, source, self.encode(source))

    def step_function(self):
        """Returns the step of `decoding.beam_search`, which decodes one position of every beam.

        That is `step(tokens, index, ancestry, cache) -> (logits, cache)`: see `DecodingStep`.
        """
        return DecodingStep(self.target_embedding, self.decoder, self.projection)

    def start_search(self, source, by_xla=False):
        """Returns a search's step and first cache, of ids [B, S]; XLA may compile the step."""
        if by_xla:
            source = padded_to_few_lengths(source, self.longest_source)
            return self._step_program.step_function(), self.initial_cache(source)
        return self.step_function(), self.initial_cache(source)


def _embeddings(config, policy):
    """Creates source embedding, target embedding and output projection; one layer if tied."""
    sizes = config.vocab_size, config.d_model, config.positions, config.max_length
    if config.tie_embeddings:
        tied = PositionalEmbedding(*sizes, config.output_bias, name="embedding", dtype=policy)
        return tied, tied, tied
    source, target = (
        PositionalEmbedding(*sizes, name=f"{side}_embedding", dtype=policy)
        for side in ("source", "target")
    )
    projection = OutputProjection(
        config.vocab_size, config.output_bias, name="output_projection", dtype=policy
    )
    return source, target, projection


def build_model(config: Config, precision: str | None = None) -> Transformer:
    """Builds the model of a configuration, in its training precision by default."""
    dtype = precision or config.training.precision
    return Transformer(**vars(config.model), dtype=dtype, name="transformer")
