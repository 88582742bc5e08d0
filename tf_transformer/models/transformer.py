"""The Transformer as a functional Keras model (paper 3, Figure 1), and its cached decoding."""

from itertools import islice

import keras
from keras import ops

from tf_transformer.config import ModelConfig
from tf_transformer.layers import Decoder, Encoder, padding_mask
from tf_transformer.layers.embedding import OutputProjection, project_to_logits
from tf_transformer.models.configured import (
    ConfiguredModel,
    config_of,
    make_embedding,
    make_stack,
)

# --- The model ---------------------------------------------------------------------------


@keras.saving.register_keras_serializable(package="tf_transformer")
class Transformer(ConfiguredModel):
    """Transformer that maps source and target ids to logits of the next target token.

    Inputs are {"source": [B, S], "target": [B, T]}, integer ids with 0 for padding; the output
    is float32 logits [B, T, V] for the token that follows each target position. Feed the target
    shifted right: BOS first, without its last token. The labels are the target with EOS. The
    defaults are the paper's base model.

    Args:
        config: a `ModelConfig`, or its fields as arguments:
        {settings}
        dtype, name, trainable: as in any Keras model; `dtype` is the layers' policy.

    Attributes:
        config: the `ModelConfig`.
        position_limits: longest source and target in training, in tokens, which limit decoding
            with learned positions; None allows `max_length`.

    Raises:
        UserError: if a setting is out of range.

    Example:
        >>> model = Transformer(vocab_size=100, num_layers=2, d_model=64, d_ff=128, num_heads=4)
        >>> ids = np.array([[5, 6, 3, 0]])
        >>> model({"source": ids, "target": ids}).shape
        TensorShape([1, 4, 100])
    """

    @staticmethod
    def graph(config: ModelConfig, policy):
        """Connects the layers as in Figure 1."""
        encoder = make_stack(Encoder, config, policy, "encoder")
        decoder = make_stack(Decoder, config, policy, "decoder")
        source_embedding, target_embedding, projection = _embeddings(config, policy)

        source = keras.Input((None,), dtype="int32", name="source")
        target = keras.Input((None,), dtype="int32", name="target")
        encoder_output = encoder(source_embedding(source))
        hidden = decoder(target_embedding(target), encoder_output)
        reverse = {"reverse": True} if config.tie_embeddings else {}
        return {"source": source, "target": target}, projection(hidden, **reverse)

    def take_layers(self, layers) -> None:
        """Sets the attributes from the layers of the graph.

        Raises:
            ValueError: if a clone's encoder and decoder have different arguments.
        """
        tied = layers.get("embedding")
        self.source_embedding = tied or layers["source_embedding"]
        self.target_embedding = tied or layers["target_embedding"]
        self.encoder = layers["encoder"]
        self.decoder = layers["decoder"]
        self.projection = tied or layers["output_projection"]
        self.dtype_policy = self.encoder.dtype_policy
        layers, decoder_layers = self.encoder.num_layers, self.decoder.num_layers
        common = {
            "num_layers": layers,
            "decoder_layers": None if decoder_layers == layers else decoder_layers,
            "tie_embeddings": bool(tied),
            "output_bias": self.projection.use_bias,
        }
        self.config = config_of(self.source_embedding, self.encoder, **common)
        other = config_of(self.target_embedding, self.decoder, **common)
        if other != self.config:
            raise ValueError(
                "Encoder and decoder must have the same arguments. "
                f"Received: {self.config} and {other}."
            )

    def get_config(self):
        limits = self.position_limits
        return super().get_config() | ({"position_limits": list(limits)} if limits else {})

    @classmethod
    def from_config(cls, config, custom_objects=None):
        config = dict(config)
        limits = config.pop("position_limits", None)
        model = super().from_config(config, custom_objects)
        model.position_limits = limits and tuple(limits)
        return model

    @property
    def position_limits(self) -> tuple[int, int] | None:
        """Longest source and target in training; kept by the stacks, which clones copy."""
        source, target = self.encoder.trained_length, self.decoder.trained_length
        return None if source is None or target is None else (source, target)

    @position_limits.setter
    def position_limits(self, limits: tuple[int, int] | None) -> None:
        self.encoder.trained_length, self.decoder.trained_length = limits or (None, None)

    @property
    def vocab_size(self) -> int:
        """V, the number of columns of the logits."""
        return self.config.vocab_size

    @property
    def longest_source(self) -> int | None:
        """The longest source allowed, in tokens; None for no limit."""
        return self._longest(0)

    @property
    def longest_target(self) -> int | None:
        """The longest target allowed, in tokens; None for no limit."""
        return self._longest(1)

    def _longest(self, side: int) -> int | None:
        if self.config.positions != "learned":
            return None
        most = self.config.max_length
        limits = self.position_limits
        return min(most, limits[side]) if limits else most

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
                fused=fused,
            )
            logits = project_to_logits(hidden, output_kernel, output_bias)
            return logits, {**cache, "past": past}

        return step


def _embeddings(config, policy):
    """Creates source embedding, target embedding and output projection; one layer if tied."""
    if config.tie_embeddings:
        return (make_embedding(config, policy, "embedding"),) * 3
    projection = OutputProjection(
        config.vocab_size, config.output_bias, name="output_projection", dtype=policy
    )
    source, target = (
        make_embedding(config, policy, f"{side}_embedding", output_bias=False)
        for side in ("source", "target")
    )
    return source, target, projection


def _own_history(ancestry, width):
    """Marks the cached rows (step t, slot j) of each beam: [B, W, t] -> [B, 1, W, t * W]."""
    own = ops.equal(ops.expand_dims(ancestry, -1), ops.arange(width, dtype="int32"))
    batch, beams, steps = ops.shape(ancestry)
    return ops.reshape(own, (batch, 1, beams, steps * width))
