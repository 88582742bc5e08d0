"""Fixtures that several tests share."""

import resource
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest


@pytest.fixture
def largest_file() -> Callable[[int], AbstractContextManager[None]]:
    """`with largest_file(99)`: the system writes no byte beyond 99, as on a full disk."""

    @contextmanager
    def limit(size: int) -> Iterator[None]:
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    return limit
