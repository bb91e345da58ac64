"""Strategies that damage what can be read, so that most of it still looks right."""

from hypothesis import strategies as st

__all__ = ["damaged"]

_WORDS = (
    b"", b"nan", b"inf", b"-inf", b"1e999", b"-1", b"0", b"99999999999999999999", b"1e308", b"true", b"null", b"[]",
    b"{}", b'""', b"[[[[[[[[", b"\x00", b"\xff\xfe", b"\xef\xbb\xbf", b"\n", b"\r", b",", b";", b"\t", b'"', b"'", b"=",
    "\u202e".encode(), "\ud7ff".encode(), b"0x10", b"1_000", b"2020-01-01", b"#", b"\\", b"*", b"../../etc/passwd",
)  # fmt: skip


@st.composite
def damaged(draw: st.DrawFn, example: bytes) -> bytes:
    """An example in which up to four stretches are replaced by something else, doubled, or left out."""
    content = example
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(content)))
        end = min(len(content), start + draw(st.sampled_from((0, 0, 1, 2, 5, 20, 10_000))))
        how = draw(st.integers(0, 3))
        if how == 0:
            new = draw(st.sampled_from(_WORDS))
        elif how == 1:
            new = draw(st.binary(max_size=6))
        elif how == 2:
            new = content[start:end] * draw(st.integers(2, 3))
        else:
            new = draw(st.text(max_size=4)).encode("utf-8", "ignore")
        content = content[:start] + new + content[end:]
    return content
