"""Constituency parsing (paper 6.3).

`trees` and `treebank` read brackets, `linearisation` turns trees into sequences and back,
`lexicon` and `tree_grammar` keep the search to trees, `parser` parses, `bracket_rules` and
`brackets` score, `plot` draws, and `task` trains.
"""
