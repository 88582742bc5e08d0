"""Classification of sentences: the encoder of a run under a head, trained by Keras's `fit`."""
