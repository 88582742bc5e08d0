"""Translation of text.

`task` trains, `translator` translates, `tuning` chooses settings of the search,
`generation` writes synthetic pairs, and `overlap` finds test sentences in the training text.
"""
