"""Translation of text.

`task` trains, `translator` and `exported` translate, `tuning` chooses settings of the search,
`shortlist` learns candidate tokens from a `translation_table`, `generation` writes synthetic
pairs, and `overlap` finds test sentences in the training text.
"""
