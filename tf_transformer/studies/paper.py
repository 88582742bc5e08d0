"""The paper's figures: Tables 2 and 3, and its rates of computation."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Printed:
    """A row of Table 3, measured on newstest2013 without averaging checkpoints.

    Attributes:
        perplexity: per word piece.
        bleu: tokenised, as was usual that year.
        millions: of parameters; None where the table leaves it blank.
    """

    perplexity: float
    bleu: float
    millions: int | None = None


# By preset. Rows A, D and E, whose size the table leaves blank, are as large as base.
TABLE3_PRINTED = {
    "base": Printed(4.92, 25.8, 65),
    "table3-A-h1": Printed(5.29, 24.9),
    "table3-A-h4": Printed(5.00, 25.5),
    "table3-A-h16": Printed(4.91, 25.8),
    "table3-A-h32": Printed(5.01, 25.4),
    "table3-B-dk16": Printed(5.16, 25.1, 58),
    "table3-B-dk32": Printed(5.01, 25.4, 60),
    "table3-C-N2": Printed(6.11, 23.7, 36),
    "table3-C-N4": Printed(5.19, 25.3, 50),
    "table3-C-N8": Printed(4.88, 25.5, 80),
    "table3-C-d256": Printed(5.75, 24.5, 28),
    "table3-C-d1024": Printed(4.66, 26.0, 168),
    "table3-C-ff1024": Printed(5.12, 25.4, 53),
    "table3-C-ff4096": Printed(4.75, 26.2, 90),
    "table3-D-drop0.0": Printed(5.77, 24.6),
    "table3-D-drop0.2": Printed(4.95, 25.5),
    "table3-D-ls0.0": Printed(4.67, 25.3),
    "table3-D-ls0.2": Printed(5.47, 25.7),
    "table3-E-learned": Printed(4.92, 25.7),
    "big": Printed(4.33, 26.4, 213),
}

# Table 2, training cost of English-German in floating-point operations.
TABLE2_FLOPS = {"base": 3.3e18, "big": 2.3e19}

# Footnote 5: sustained TFLOP/s of one GPU, which the paper multiplies by the training time.
SUSTAINED_TFLOPS = {"K80": 2.8, "K40": 3.7, "M40": 6.0, "P100": 9.5}
