"""Which heads and sublayers a trained model needs: masks, importance, pruning, pictures."""
