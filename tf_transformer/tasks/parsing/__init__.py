"""Constituency parsing (paper 6.3).

`trees` and `treebank` read bracketed trees, `linearisation` turns trees into sequences and
back, `lexicon` and `tree_grammar` constrain the search to trees, `parser` parses,
`bracket_rules` and `brackets` score, `plot` draws, and `task` trains.
"""
