"""What encoder and decoder share: N equal layers between a dropout and, pre-LN, a last norm."""

import keras


class Stack(keras.layers.Layer):
    """Dropout on the embedded input (paper 5.4), then N layers of `layer_class`.

    Args:
        num_layers: N.
        num_heads, d_ff, key_dim, value_dim, dropout, norm_first: those of `layer_class`. With
            `norm_first` a last LayerNorm follows, since the residual path has none.
    """

    layer_class: type[keras.layers.Layer]

    def __init__(
        self,
        num_layers: int,
        num_heads: int,
        d_ff: int,
        key_dim: int | None = None,
        value_dim: int | None = None,
        dropout: float = 0.0,
        norm_first: bool = False,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.arguments = {
            "num_heads": num_heads,
            "d_ff": d_ff,
            "key_dim": key_dim,
            "value_dim": value_dim,
            "dropout": dropout,
            "norm_first": norm_first,
        }
        policy = self.dtype_policy
        self.dropout = keras.layers.Dropout(dropout, name="dropout", dtype=policy)
        self.layers = [
            self.layer_class(**self.arguments, name=f"layer_{i}", dtype=policy)
            for i in range(num_layers)
        ]
        self.norm = (
            keras.layers.LayerNormalization(epsilon=1e-6, name="norm", dtype=policy)
            if norm_first
            else None
        )
        self.supports_masking = True

    def build_layers(self, *shapes):
        """Builds every layer for these input shapes, and the norm for the first of them."""
        for layer in self.layers:
            layer.build(*shapes)
        if self.norm:
            self.norm.build(shapes[0])

    def last_norm(self, x):
        return self.norm(x) if self.norm else x

    def get_config(self):
        return super().get_config() | {"num_layers": len(self.layers)} | self.arguments
