"""Classification of sentences with an encoder-only model."""
