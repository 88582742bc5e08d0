"""The Python of README and of the pages, as printed."""

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent


def snippets(page: str) -> list[str]:
    """The Python blocks of a page, such as "docs/guides/exporting.md", in its order."""
    return re.findall(r"(?ms)^```python\n(.*?)^```$", (ROOT / page).read_text("utf-8"))
