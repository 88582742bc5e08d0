"""Constituency parsing (paper 6.3).

`trees` and `treebank` read bracketed trees, `linearisation` turns trees into sequences and
back, `lexicon`, `tree_grammar` and `tree_graph` constrain the search to trees, `parser` and
`exported` parse, `bracket_rules` and `brackets` score, `plot` draws, and `task` trains.
"""
