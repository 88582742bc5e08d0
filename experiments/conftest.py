"""The fixtures that experiments share with the tests of the package."""

from conftest import (  # of tests/
    bounded_memory,
    empty_folder,
    logging_as_imported,
    pytest_collection_modifyitems,
    trained_run,
    young_heap,
)

__all__ = [
    "bounded_memory", "empty_folder", "logging_as_imported", "pytest_collection_modifyitems",
    "trained_run", "young_heap",
]  # fmt: skip
