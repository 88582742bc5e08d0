"""Memory that a process keeps: glibc otherwise returns every freed tensor to the kernel."""

import ctypes
import os
import sys

# Of glibc's malloc.h: https://man7.org/linux/man-pages/man3/mallopt.3.html
_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_MAX = -1, -2, -4
_SETTINGS = ((_M_MMAP_MAX, 0), (_M_TOP_PAD, 64 << 20), (_M_TRIM_THRESHOLD, 2**31 - 1))

SWITCH = "TF_TRANSFORMER_MALLOC"  # 0 leaves glibc's allocator as it is


def keep_freed_memory() -> None:
    """Makes glibc's allocator keep freed memory; call it before TensorFlow allocates.

    TensorFlow frees each tensor when its last reader is done. By default glibc returns large
    ones to the kernel at once, and the next step takes them again, page by page: over a third
    of the processor time of a small model's training. Does nothing with another C library.
    """
    if os.environ.get(SWITCH) == "0" or not sys.platform.startswith("linux"):
        return
    library = ctypes.CDLL(None)
    if hasattr(library, "gnu_get_libc_version"):
        for name, value in _SETTINGS:
            library.mallopt(name, value)
