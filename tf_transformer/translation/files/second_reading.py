"""A second reading of translated files, by other libraries than those that wrote them.

Each function returns the first difference of two files but for translations, "" if none.
"""

import re


def compare_subtitles(before: bytes, after: bytes) -> str:
    """Compares the cues of two files, as pysubs2 reads them."""
    import pysubs2

    def cues(content: bytes) -> list[tuple]:
        text = _decoded(content)
        name = "vtt" if text.startswith("WEBVTT") else "srt"
        keep = {"keep_html_tags": True, "keep_unknown_html_tags": True}
        events = pysubs2.SSAFile.from_string(text, name, **keep)
        tags = re.compile(r"<[^<>]*>|\{\\[^{}]*\}")
        return [
            (
                each.start,
                each.end,
                bool(tags.sub("", each.text).strip()),
                sorted(tags.findall(each.text)),
                each.text.count("\\N"),
            )
            for each in events
        ]

    old, new = cues(before), cues(after)
    if len(old) != len(new):
        return f"{len(old)} cues, then {len(new)}"
    for number, (one, other) in enumerate(zip(old, new, strict=True), 1):
        if one[:4] != other[:4] or one[4] < other[4]:
            return f"cue {number} has other times, tags or lines"
    return ""


def _decoded(content: bytes) -> str:
    for mark, name in (
        (b"\xef\xbb\xbf", "utf-8-sig"),
        (b"\xff\xfe", "utf-16"),
        (b"\xfe\xff", "utf-16"),
    ):
        if content.startswith(mark):
            return content.decode(name)
    try:
        return content.decode()
    except UnicodeDecodeError:
        return content.decode("cp1252", "replace")
