"""`tf-transformer baseline`: a bag-of-words model, whose score a Transformer has to beat."""

import argparse
import logging
from pathlib import Path

from tf_transformer.cli.options import picture
from tf_transformer.cli.parser import float_from
from tf_transformer.cli.scores import print_class_scores
from tf_transformer.tasks.classification.labelled import labels_of, read_examples

logger = logging.getLogger(__name__)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    add = parser.add_argument
    lines = "lines of a label, a TAB and a sentence; repeatable"
    add("--train", action="append", required=True, metavar="FILE", help=lines)
    add("--test", required=True, metavar="FILE", help="lines to score, in the same form")
    penalty = "L2 penalty: X / 2 times the sum of squared weights (default: 1)"
    add("--l2", type=float_from(1e-12, 1e12), default=1.0, metavar="X", help=penalty)
    add("--output", metavar="PICTURE", help="draw the confusions, as .png, .svg or .pdf")


def command(options: argparse.Namespace) -> None:
    """Trains and scores a logistic regression on words and word pairs.

    Prints the same scores as `classify --labelled`. Takes seconds, or a minute with many
    labels.
    """
    from tf_transformer.tasks.classification.bag_of_words import BagOfWords
    from tf_transformer.tasks.classification.metrics import score_classes

    path = picture(options.output) if options.output else None
    files = [Path(name) for name in options.train]
    labels = labels_of(files)
    test = list(read_examples(Path(options.test), labels))
    examples = [example for file in files for example in read_examples(file)]
    model = BagOfWords(l2=options.l2)
    iterations = model.fit([one.sentence for one in examples], [one.label for one in examples])
    logger.info("%s features, %d iterations", f"{model.num_features:,}", iterations)
    predicted = model.classify([one.sentence for one in test])
    print_class_scores(score_classes([one.label for one in test], predicted, labels), path)
