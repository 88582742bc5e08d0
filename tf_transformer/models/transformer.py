"""The Transformer as a functional Keras model (paper 3, Figure 1), and its cached decoding."""

import dataclasses
import inspect
from collections.abc import Mapping
from itertools import islice
from typing import Any, Self

import keras
from keras import ops

from tf_transformer.config import Config, ModelConfig
from tf_transformer.config.config import DEFAULT_GAIN
from tf_transformer.fast.keras_hooks import sublayers
from tf_transformer.fast.projections import Inference
from tf_transformer.layers import Decoder, Encoder, PositionalEmbedding, padding_mask
from tf_transformer.layers.attention import additive
from tf_transformer.layers.embedding import OutputProjection, project_to_logits
from tf_transformer.layers.stack import Stack
from tf_transformer.models.token_model import TokenModel

# --- What it shares with the classifier --------------------------------------------------


class BaseTransformer(TokenModel):
    """A functional model with stacks of encoder or decoder layers.

    Its `get_config` holds the arguments of its constructor, which layers are frozen and which
    stacks are recomputed; `from_config` restores all of them.

    Attributes:
        config: the `ModelConfig` of its settings.
    """

    config: ModelConfig

    def enable_lora(self, rank: int, **options: Any) -> None:
        """Adapts the kernels of encoder and decoder; freezes embeddings and norms.

        A classifier's output layer stays trainable. Compile the model afterwards. Saving merges
        the adapters into the kernels; the model is loaded without LoRA or frozen layers.

        A `Translator` or `SentenceClassifier` that has been used before may go on without the
        adapters, because its graphs are traced: make a new one.

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
        }

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


def settings_among(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the arguments of a constructor that are settings of `ModelConfig`."""
    names = [field.name for field in dataclasses.fields(ModelConfig)]
    return {name: arguments[name] for name in names if name in arguments}


def arguments_of(layer: type, config: ModelConfig) -> dict[str, Any]:
    """Returns the settings that are arguments of a layer or model."""
    taken = inspect.signature(layer).parameters
    return {name: value for name, value in vars(config).items() if name in taken}


# --- The model ---------------------------------------------------------------------------


@keras.saving.register_keras_serializable(package="tf_transformer")
class Transformer(BaseTransformer):
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
        key_dim: K, the width of a head's queries and keys; d_model / num_heads if None.
        value_dim: width of a head's values; d_model / num_heads if None.
        dropout: rate on sublayer outputs and on embeddings plus positions.
        attention_dropout: rate on attention weights; the paper has none there.
        activation_dropout: rate after the activation of feed-forward networks; the paper has
            none there.
        norm_first: pre-LN, with a final norm on both stacks, instead of the paper's post-LN.
        positions: how the model knows the order of tokens: the first two are added to the
            embeddings, relative and rotary act in self-attention ('sinusoidal', 'learned',
            'relative', 'rotary' or 'none').
        attention_window: positions to each side (back, in a decoder) that self-attention sees;
            0: all.
        tie_embeddings: one matrix for both embeddings and the output projection (paper 3.4).
        max_length: longest input if positions are learned.
        source_positions: learned positions that sources have trained, set by training;
            max_length if None.
        target_positions: learned positions that targets have trained, set by training;
            max_length if None.
        attention_bias: biases in the projections of attention; the paper has none.
        output_bias: a bias added to the logits; the paper has none.
        activation: activation of the feed-forward networks; in the last two it gates a second
            inner projection of width F ('relu', 'swish', 'swiglu' or 'geglu').
        norm: kind of every norm ('layer' or 'rms').
        norm_epsilon: added to the variance in every norm.
        query_key_gain: gain of the Xavier uniform initialisation of query and key kernels.
        value_gain: gain of the Xavier uniform initialisation of value kernels.
        dtype: policy of all layers; Keras's global policy if None.
        name: as in any Keras model.
        trainable: as in any Keras model.

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

    Raises:
        UserError: if a setting is out of range.

    Example:
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
        key_dim: int | None = None,
        value_dim: int | None = None,
        dropout: float = 0.1,
        attention_dropout: float = 0.0,
        activation_dropout: float = 0.0,
        norm_first: bool = False,
        positions: str = "sinusoidal",
        attention_window: int = 0,
        tie_embeddings: bool = True,
        max_length: int = 1024,
        source_positions: int | None = None,
        target_positions: int | None = None,
        attention_bias: bool = False,
        output_bias: bool = False,
        activation: str = "relu",
        norm: str = "layer",
        norm_epsilon: float = 1e-06,
        query_key_gain: float = DEFAULT_GAIN,
        value_gain: float = DEFAULT_GAIN,
        dtype: str | dict | keras.DTypePolicy | None = None,
        name: str | None = None,
        trainable: bool = True,
    ):
        config = ModelConfig(**settings_among(locals()))
        policy = keras.dtype_policies.get(dtype or keras.config.dtype_policy())
        encoder = Encoder(**arguments_of(Encoder, config), name="encoder", dtype=policy)
        stack = arguments_of(Decoder, config) | {"num_layers": config.num_decoder_layers}
        decoder = Decoder(**stack, name="decoder", dtype=policy)
        source_embedding, target_embedding, projection = _embeddings(config, policy)

        source = keras.Input((None,), dtype="int32", name="source")
        target = keras.Input((None,), dtype="int32", name="target")
        encoder_output = encoder(source_embedding(source))
        hidden = decoder(target_embedding(target), encoder_output)
        logits = projection(hidden, **({"reverse": True} if tie_embeddings else {}))
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

    def get_config(self):
        return super().get_config() | dataclasses.asdict(self.config)

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
        return next(islice(self._decoder_weights(source, target), layer, None))[1]

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
        """Returns the cache before the first step; dimension 0 of every tensor is B.

        Args:
            source: ids [B, S].

        Returns:
            A dict of `memory`, each layer's keys and values of the encoder output;
            `memory_mask` [B, 1, 1, S]; and `past`, each layer's keys and values of the
            positions decoded so far, still empty, [B, H, 0, K].
        """
        encoder_output = self.encode(source)
        memory = [
            layer.cross_attention.project_memory(encoder_output)
            for layer in self.decoder.layers
        ]
        past = [
            tuple(ops.zeros_like(heads[:, :, :0]) for heads in layer_memory)
            for layer_memory in memory
        ]
        return {
            "memory": memory,
            "memory_mask": ops.expand_dims(padding_mask(source), (1, 2)),
            "past": past,
        }

    def step_function(self):
        """Returns the step of `decoding.beam_search`, which decodes one position of every beam.

        Call this once, outside the search loop: it prepares kernels that all steps share.

        Returns:
            `step(tokens, index, ancestry, cache) -> (logits, cache)` with tokens [B, W],
            their position `index`, ancestry [B, W, index + 1] (the slot in which each earlier
            step of a beam was computed), float32 logits [B, W, V].
        """
        output_kernel = self.projection.output_kernel()
        output_bias = self.projection.output_bias
        fused = self.decoder.fused_projections()
        window = self.config.attention_window
        by_distance = self.config.positions in ("relative", "rotary")
        inference = Inference(self.decoder)

        def step(tokens, index, ancestry, cache):
            with inference.on():
                return one_step(tokens, index, ancestry, cache)

        def one_step(tokens, index, ancestry, cache):
            width = ops.shape(tokens)[1]
            column = ops.reshape(tokens, (-1, 1))
            embedded = self.target_embedding(column, offset=index)  # [B * W, 1, D]
            beams = ops.reshape(embedded, (-1, width, embedded.shape[-1]))
            if window:  # the cache may hold the last columns only
                columns = ops.shape(cache["past"][0][0])[2] // width + 1
                positions = _positions(ancestry, index, width, True)[-columns * width :]
                self_mask = _own_history(ancestry[..., -columns:], width)
                self_mask = ops.logical_and(self_mask, positions >= index - window)
            else:
                positions = _positions(ancestry, index, width) if by_distance else None
                self_mask = _own_history(ancestry, width)
            hidden, past = self.decoder.step(
                beams,
                cache["past"],
                cache["memory"],
                self_mask=additive(self_mask),
                memory_mask=additive(cache["memory_mask"]),
                fused=fused,
                positions=positions,
            )
            if window:
                last = -window * width
                past = [(keys[:, :, last:], values[:, :, last:]) for keys, values in past]
            logits = project_to_logits(hidden, output_kernel, output_bias)
            return logits, {**cache, "past": past}

        return step


def _embeddings(config, policy):
    """Creates source embedding, target embedding and output projection; one layer if tied."""
    arguments = arguments_of(PositionalEmbedding, config) | {"dtype": policy}
    if config.tie_embeddings:
        return (PositionalEmbedding(**arguments, name="embedding"),) * 3
    projection = OutputProjection(
        config.vocab_size, config.output_bias, name="output_projection", dtype=policy
    )
    source, target = (
        PositionalEmbedding(**arguments | {"output_bias": False}, name=f"{side}_embedding")
        for side in ("source", "target")
    )
    return source, target, projection


def build_model(config: Config, precision: str | None = None) -> Transformer:
    """Builds the model of a configuration, in its training precision by default."""
    dtype = precision or config.training.precision
    return Transformer(**vars(config.model), dtype=dtype, name="transformer")


def _own_history(ancestry, width):
    """Marks the cached rows (step t, slot j) of each beam: [B, W, t] -> [B, 1, W, t * W]."""
    own = ops.equal(ops.expand_dims(ancestry, -1), ops.arange(width, dtype="int32"))
    batch, beams, steps = ops.shape(ancestry)
    return ops.reshape(own, (batch, 1, beams, steps * width))


def _positions(ancestry, index, width, ring=False):
    """Returns the positions of the cached rows, [t * W], from [B, W, t]; the last is `index`.

    In LiteRT columns between the decoded positions and the last one are unused. In a `ring` of
    C columns, position p is in column p mod C.
    """
    size = ops.shape(ancestry)[2] - 1
    columns = ops.arange(size, dtype="int32")
    index = ops.cast(index, "int32")
    if ring:
        columns = index - 1 - ops.mod(index - 1 - columns, size)
    columns = ops.append(columns, index)
    rows = ops.broadcast_to(columns[:, None], (ops.shape(columns)[0], width))
    return ops.reshape(rows, (-1,))
