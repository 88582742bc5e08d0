"""Classification of sentences by the encoder alone.

`labelled` reads text and labels, `labelled_corpus` encodes and batches them, `task` trains,
`transfer` begins with another run's encoder, `predictor` classifies, `metrics` and `plot` score
and draw, and `bag_of_words` is the baseline.
"""
