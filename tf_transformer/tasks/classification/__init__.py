"""Classification of sentences by the encoder."""
