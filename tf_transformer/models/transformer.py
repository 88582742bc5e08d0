"""The Transformer as a functional Keras model (paper 3, Figure 1), and its cached decoding."""

from itertools import islice

import keras
from keras import ops

from tf_transformer.layers import Decoder, Encoder, padding_mask
from tf_transformer.layers.embedding import OutputProjection, project_to_logits
from tf_transformer.models.parts import arguments_of, clonable, make_embedding, stack_arguments
from tf_transformer.models.token_model import TokenModel

# --- The model ---------------------------------------------------------------------------


@keras.saving.register_keras_serializable(package="tf_transformer")
class Transformer(TokenModel):
    """Inputs {"source": [B, S], "target": [B, T]}, integer ids with 0 for padding; output
    float32 logits [B, T, V] for the token that follows each target position.

    Feed the target shifted right: BOS first, without its last token. The labels are the
    target with EOS. The defaults are the paper's base model.

    Args:
        vocab_size: V, shared by both languages.
        num_layers: N, of the encoder and of the decoder.
        d_model: D.
        d_ff: F.
        num_heads: H.
        key_dim, value_dim: sizes per head; D / H by default.
        dropout: rate on sublayer outputs and on embeddings plus positions (paper 5.4).
        norm_first: pre-LN, with a last norm on either stack, instead of post-LN.
        positions: "sinusoidal" or "learned".
        tie_embeddings: one matrix for source and target embeddings and the output projection
            (paper 3.4), or three.
        max_length: longest input, where positions are learned.
        attention_bias: biases in the projections of attention, which the paper has not.
        output_bias: a bias added to the logits, which the paper has not.
        activation: "relu", or "swish", of the feed-forward networks.
        norm_epsilon: added to the variance in every layer norm.

    Attributes:
        position_limits: the most tokens of source and target in training, for decoding with
            learned positions; None allows all `max_length`.

    Example:
        >>> model = Transformer(vocab_size=100, num_layers=2, d_model=64, d_ff=128, num_heads=4)
        >>> ids = np.array([[5, 6, 3, 0]])
        >>> model({"source": ids, "target": ids}).shape
        TensorShape([1, 4, 100])
    """

    position_limits: tuple[int, int] | None = None

    @clonable
    def __init__(
        self,
        vocab_size: int,
        num_layers: int = 6,
        d_model: int = 512,
        d_ff: int = 2048,
        num_heads: int = 8,
        key_dim: int | None = None,
        value_dim: int | None = None,
        dropout: float = 0.1,
        norm_first: bool = False,
        positions: str = "sinusoidal",
        tie_embeddings: bool = True,
        max_length: int | None = None,
        attention_bias: bool = False,
        output_bias: bool = False,
        activation: str = "relu",
        norm_epsilon: float = 1e-6,
        dtype=None,
        **kwargs,
    ):
        arguments = {
            "vocab_size": vocab_size,
            "num_layers": num_layers,
            "d_model": d_model,
            "d_ff": d_ff,
            "num_heads": num_heads,
            "key_dim": key_dim,
            "value_dim": value_dim,
            "dropout": dropout,
            "norm_first": norm_first,
            "positions": positions,
            "tie_embeddings": tie_embeddings,
            "max_length": max_length,
            "attention_bias": attention_bias,
            "output_bias": output_bias,
            "activation": activation,
            "norm_epsilon": norm_epsilon,
        }
        policy = keras.dtype_policies.get(dtype or keras.config.dtype_policy())
        stack = stack_arguments(arguments, policy)
        encoder = Encoder(**stack, name="encoder")
        decoder = Decoder(**stack, name="decoder")
        source_embedding, target_embedding, projection = _embeddings(arguments, policy)

        source = keras.Input((None,), dtype="int32", name="source")
        target = keras.Input((None,), dtype="int32", name="target")
        encoder_output = encoder(source_embedding(source))
        hidden = decoder(target_embedding(target), encoder_output)
        logits = projection(hidden, reverse=True) if tie_embeddings else projection(hidden)

        self._adopt({"source": source, "target": target}, logits, **kwargs)

    def _adopt(self, inputs, outputs, **kwargs):
        """Becomes the model of a graph of these layers, its own or that of a clone.

        Raises:
            ValueError: if encoder and decoder have not the same arguments.
        """
        super().__init__(inputs, outputs, **kwargs)
        layers = {layer.name: layer for layer in self.layers}
        tied = layers.get("embedding")
        self.source_embedding = tied or layers["source_embedding"]
        self.target_embedding = tied or layers["target_embedding"]
        self.encoder = layers["encoder"]
        self.decoder = layers["decoder"]
        self.projection = tied or layers["output_projection"]
        self.dtype_policy = self.encoder.dtype_policy
        own = {"tie_embeddings": bool(tied), "output_bias": self.projection.use_bias}
        self.arguments = arguments_of(self.source_embedding, self.encoder) | own
        other = arguments_of(self.target_embedding, self.decoder) | own
        if other != self.arguments:
            raise ValueError(
                "Encoder and decoder must have the same arguments. "
                f"Received: {self.arguments} and {other}."
            )

    def get_config(self):
        policy = keras.dtype_policies.serialize(self.dtype_policy)
        own = {"name": self.name, "trainable": self.trainable, "dtype": policy}
        return own | self.arguments

    @property
    def vocab_size(self) -> int:
        """V."""
        return self.arguments["vocab_size"]

    @property
    def longest_source(self) -> int | None:
        """The most tokens of a source; None where there is no limit."""
        return self._longest(0)

    @property
    def longest_target(self) -> int | None:
        """The most tokens of a target; None where there is no limit."""
        return self._longest(1)

    def _longest(self, side: int) -> int | None:
        if self.arguments["positions"] != "learned":
            return None
        rows = self.arguments["max_length"]
        return min(rows, self.position_limits[side]) if self.position_limits else rows

    # --- Looking inside ------------------------------------------------------------------

    def attention_weights(self, source, target):
        """What a forward pass attends to, without dropout.

        Args:
            source, target: ids [B, S] and [B, T], as the model itself takes them.

        Returns:
            A dict of weights, a row of which sums to 1 over the keys: "encoder"
            [N, B, H, S, S], "decoder" [N, B, H, T, T] and "cross" [N, B, H, T, S].
        """
        embedded = self.source_embedding(source)
        encoder = self.encoder.attention_weights(embedded, padding_mask(source))
        decoder = list(self._decoder_weights(source, target))
        return {
            "encoder": ops.stack(encoder),
            "decoder": ops.stack([own for own, _ in decoder]),
            "cross": ops.stack([cross for _, cross in decoder]),
        }

    def cross_attention_weights(self, source, target, layer):
        """`attention_weights(source, target)["cross"][layer]`, [B, H, T, S], and no others.

        `layer` counts from 0 and is below `num_layers`.

        TensorFlow's optimizer removes weights that nobody reads one operation at a time: in
        a graph that reads one layer's, making all of them costs seconds at its first run.
        """
        return next(islice(self._decoder_weights(source, target), layer, None))[1]

    def _decoder_weights(self, source, target):
        embedded = self.target_embedding(target)
        masks = padding_mask(target), padding_mask(source)
        return self.decoder.attention_weights(embedded, self.encode(source), *masks)

    # --- Cached decoding -----------------------------------------------------------------

    def encode(self, source):
        """The encoder's output: ids [B, S] -> [B, S, D]."""
        embedded = self.source_embedding(source)
        return self.encoder(embedded, mask=padding_mask(source), training=False)

    def initial_cache(self, source):
        """What decoding knows before its first step; dimension 0 of every tensor is B.

        Args:
            source: ids [B, S].

        Returns:
            A dict of `memory`, keys and values of the encoder's output for each layer,
            `memory_mask` [B, 1, 1, S], and `past`, the (empty) keys and values
            [B, H, 0, K] of the positions decoded so far.
        """
        encoder_output = self.encode(source)
        memory = [
            layer.cross_attention.project_memory(encoder_output)
            for layer in self.decoder.layers
        ]
        past = [
            tuple(ops.zeros_like(part[:, :, :0]) for part in layer_memory)
            for layer_memory in memory
        ]
        return {
            "memory": memory,
            "memory_mask": ops.expand_dims(padding_mask(source), (1, 2)),
            "past": past,
        }

    def step_function(self, candidates=None):
        """The step that `decoding.beam_search` calls, one position for every beam.

        Make it once, outside the search's loop: it holds kernels in the form steps need.

        Args:
            candidates: int32 [C], the only tokens to compute logits of: these are [B, W, C]
                then. None: all V.

        Returns:
            `step(tokens, index, ancestry, cache) -> (logits, cache)` with tokens [B, W],
            their position `index`, ancestry [B, W, index + 1] (the slot in which each earlier
            step of a beam was computed), float32 logits [B, W, V].
        """
        output_kernel = self.projection.output_kernel(candidates)
        output_bias = self.projection.output_bias
        if candidates is not None and output_bias is not None:
            output_bias = ops.take(output_bias, candidates, axis=0)
        projections = self.decoder.self_projections()

        def step(tokens, index, ancestry, cache):
            width = ops.shape(tokens)[1]
            column = ops.reshape(tokens, (-1, 1))
            embedded = self.target_embedding(column, offset=index)  # [B * W, 1, D]
            beams = ops.reshape(embedded, (-1, width, embedded.shape[-1]))
            hidden, past = self.decoder.step(
                beams,
                cache["past"],
                cache["memory"],
                self_mask=_own_history(ancestry, width),
                memory_mask=cache["memory_mask"],
                projections=projections,
            )
            logits = project_to_logits(hidden, output_kernel, output_bias)
            return logits, {**cache, "past": past}

        return step


def _embeddings(arguments, policy):
    """Source embedding, target embedding and output projection: one layer, or three."""
    bias = arguments["output_bias"]
    if arguments["tie_embeddings"]:
        return (make_embedding(arguments, policy, "embedding", output_bias=bias),) * 3
    projection = OutputProjection(
        arguments["vocab_size"], bias, name="output_projection", dtype=policy
    )
    names = ("source_embedding", "target_embedding")
    source, target = (make_embedding(arguments, policy, name) for name in names)
    return source, target, projection


def _own_history(ancestry, width):
    """Which cached rows (step t, slot j) a beam may see: [B, W, t] -> [B, 1, W, t * W]."""
    own = ops.equal(ops.expand_dims(ancestry, -1), ops.arange(width, dtype="int32"))
    batch, beams, steps = ops.shape(ancestry)
    return ops.reshape(own, (batch, 1, beams, steps * width))
