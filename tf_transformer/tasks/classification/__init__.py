"""Classification of sentences with an encoder-only model.

`labelled` reads text and labels, `labelled_corpus` encodes and batches them, `task` trains,
`predictor` classifies, `metrics` scores.
"""
