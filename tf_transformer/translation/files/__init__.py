"""Files of other programs, translated entry by entry; all else in them stays byte for byte."""
