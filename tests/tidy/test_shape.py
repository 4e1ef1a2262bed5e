"""Sizes, names, and what may not be left behind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

import pytest

from tests.tidy import shape
from tests.tidy.sources import ROOT, Source, Violation, report, shipped_sources
from tests.tidy.tree import python_sources, text_files, unit_tests

Rule: TypeAlias = Callable[[Source], Iterator[Violation]]

MODULE = "src/ottla/log/segment.py"
PACKAGE = "src/ottla/log/__init__.py"
LONG_FUNCTION = "def append():\n" + "    x = 1\n" * shape.FUNCTION_LINES_MAX


@pytest.mark.parametrize(
    "rule",
    [shape.check_exceptions, shape.check_promises, shape.check_package_docstring],
)
def test_the_shipped_source_keeps_the_rule(rule: Rule) -> None:
    found = [violation for source in shipped_sources() for violation in rule(source)]
    assert not found, report(found)


@pytest.mark.parametrize("rule", [shape.check_file_length, shape.check_function_length, shape.check_module_name])
def test_all_python_keeps_the_rule(rule: Rule) -> None:
    found = [violation for source in python_sources() for violation in rule(source)]
    assert not found, report(found)


@pytest.mark.parametrize(
    ("rule", "path", "code"),
    [
        (shape.check_file_length, MODULE, "x = 1\n" * (shape.FILE_LINES_MAX + 1)),
        (shape.check_function_length, MODULE, LONG_FUNCTION),
        (shape.check_function_length, MODULE, "async " + LONG_FUNCTION),
        (shape.check_module_name, "src/ottla/log/utils.py", ""),
        (shape.check_module_name, "src/ottla/log/log_manager.py", ""),
        (shape.check_module_name, "src/ottla/misc/segment.py", ""),
        (shape.check_exceptions, MODULE, "try:\n    x = 1\nexcept:\n    x = 2"),
        (shape.check_exceptions, MODULE, "try:\n    x = 1\nexcept BaseException:\n    x = 2"),
        (shape.check_exceptions, MODULE, "raise Exception('no')"),
        (shape.check_exceptions, MODULE, "raise Exception"),
        (shape.check_promises, MODULE, "x = 1  # TO" + "DO: two"),
        (shape.check_promises, MODULE, '"""FIX' + 'ME"""'),
        (shape.check_package_docstring, PACKAGE, ""),
        (shape.check_package_docstring, PACKAGE, "from ottla.log import segment"),
    ],
)
def test_a_broken_rule_is_found(rule: Rule, path: str, code: str) -> None:
    assert list(rule(Source.parse(path, code)))


@pytest.mark.parametrize(
    ("rule", "path", "code"),
    [
        (shape.check_file_length, MODULE, "x = 1\n" * shape.FILE_LINES_MAX),
        (shape.check_function_length, MODULE, LONG_FUNCTION.removesuffix("    x = 1\n")),
        (shape.check_module_name, "src/ottla/log/segment.py", ""),
        (shape.check_exceptions, MODULE, "try:\n    x = 1\nexcept BaseException:\n    raise"),
        (shape.check_exceptions, MODULE, "try:\n    x = 1\nexcept ValueError:\n    raise OSError from None"),
        (shape.check_promises, MODULE, "x = 'mastodon'"),
        (shape.check_package_docstring, PACKAGE, '"""Where records lie."""'),
        (shape.check_package_docstring, MODULE, ""),
    ],
)
def test_a_kept_rule_passes(rule: Rule, path: str, code: str) -> None:
    found = list(rule(Source.parse(path, code)))
    assert not found, report(found)


def test_every_folder_of_the_shipped_source_is_a_package() -> None:
    folders = {path.parent for path in (ROOT / "src").rglob("*.py")}
    assert not [str(folder.relative_to(ROOT)) for folder in folders if not (folder / "__init__.py").exists()]


def test_no_file_names_a_path_of_one_machine() -> None:
    found = [violation for path, text in text_files() for violation in shape.check_machine_paths(path, text)]
    assert not found, report(found)


@pytest.mark.parametrize("line", ["see /ho" + "me/ann/x", "../sha" + "red/bench", "/wo" + "rk/main", "cd /ro" + "ot/"])
def test_a_path_of_one_machine_is_found(line: str) -> None:
    assert list(shape.check_machine_paths("README.md", line))


@pytest.mark.parametrize(
    "line", ["/var/lib/ottla", "docs/work/notes.md", "https://example.org/home/page", "~/.cache/ottla"]
)
def test_a_path_of_any_machine_passes(line: str) -> None:
    assert not list(shape.check_machine_paths("README.md", line))


def test_unit_tests_lie_where_their_modules_lie() -> None:
    modules = {source.module for source in shipped_sources()}
    found = [violation for test in unit_tests() for violation in shape.check_mirror(test, modules)]
    assert not found, report(found)


@pytest.mark.parametrize(
    ("test", "mirrors"),
    [
        ("tests/unit/log/test_segment.py", True),
        ("tests/unit/log/test_segment_recovery.py", True),
        ("tests/unit/log/test_log_survives.py", True),
        ("tests/unit/test_broker.py", True),
        ("tests/unit/log/conftest.py", True),
        ("tests/unit/log/test_sediment.py", False),
        ("tests/unit/logs/test_segment.py", False),
        ("tests/unit/test_segment.py", False),
    ],
)
def test_a_unit_test_is_matched_with_its_module(test: str, mirrors: bool) -> None:
    modules = {"ottla", "ottla.broker", "ottla.log", "ottla.log.segment"}
    assert (not list(shape.check_mirror(test, modules))) == mirrors
