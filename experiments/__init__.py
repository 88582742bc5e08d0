"""The paper's other experiments, and a use of its encoder: on public names of the package.

Each folder has a README with its command, its figures and its source. They run from a clone:
`python -m experiments.heads --help`. They are not in the wheel.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # no notes of TensorFlow about the machine
