"""A server.properties file that Kafka reads means the same here."""

from __future__ import annotations

import pytest

from ottla.model.configs.properties import parse_properties
from ottla.model.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "pairs"),
    [
        ("", {}),
        ("a=b", {"a": "b"}),
        ("  a = b c  ", {"a": "b c  "}),
        ("a:b\nc d\ne", {"a": "b", "c": "d", "e": ""}),
        ("# a=b\n  ! c=d\n\n\te=f", {"e": "f"}),
        ("a=1,\\\n   2,\\\r\n   3\nb=4", {"a": "1,2,3", "b": "4"}),
        ("a=b\\\\\nc=d", {"a": "b\\", "c": "d"}),
        ("a=\\u00e4\\t\\:\\=", {"a": "ä\t:="}),
        ("a\\ b\\:c=d", {"a b:c": "d"}),
        ("a==b", {"a": "=b"}),
        ("a=#b", {"a": "#b"}),
        ("a=1\na=2", {"a": "2"}),
        ("a=b\\", {"a": "b"}),
        ("a=b\\\n# not a comment", {"a": "b# not a comment"}),
    ],
)
def test_java_syntax(text: str, pairs: dict[str, str]) -> None:
    assert parse_properties(text) == pairs


def test_a_bad_escape_is_found_by_file_and_line() -> None:
    with pytest.raises(ConfigError, match=r"server\.properties, line 3: \\u12"):
        parse_properties("\n#\na=\\u12", "server.properties")
