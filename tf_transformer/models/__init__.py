"""Models for `fit`: Transformer, losses, the exact train step; and steps of decoding."""
