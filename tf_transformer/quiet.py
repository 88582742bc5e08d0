"""Import of TensorFlow without the messages of its C++ code."""

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def stderr_held_back() -> Iterator[None]:
    """Holds back output to stderr, including that of C++, and discards it if all goes well."""
    sys.stderr.flush()
    saved = os.dup(2)
    with tempfile.TemporaryFile() as held:
        os.dup2(held.fileno(), 2)
        try:
            yield
        except Exception:  # after Ctrl-C it is discarded as well
            held.seek(0)
            os.write(saved, held.read())
            raise
        finally:
            sys.stderr.flush()
            os.dup2(saved, 2)
            os.close(saved)


def import_tensorflow() -> None:
    """Imports TensorFlow and lists the devices, with stderr held back unless that fails.

    No environment variable silences everything that its C++ code prints on import.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("KERAS_BACKEND", "tensorflow")
    with stderr_held_back():
        import tensorflow as tf

        tf.config.list_physical_devices("GPU")
        tf.get_logger().setLevel("ERROR")
