"""What `fit` needs: Transformer, losses, the exact train step; and steps of decoding."""
