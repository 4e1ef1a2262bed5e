"""What is compiled keeps to the layers, and is what its sources say."""

from __future__ import annotations

import importlib.util
import shutil
import sysconfig
from contextlib import suppress
from pathlib import Path
from types import ModuleType

import pytest

from tests.tidy.compiled import check_compiled, compiled_sources, relative
from tests.tidy.sources import ROOT, SRC, report


def hook() -> ModuleType:
    spec = importlib.util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_compiled_modules_keep_to_the_layers() -> None:
    found = [hit for path in compiled_sources() for hit in check_compiled(relative(path), path.read_text("utf-8"))]
    assert not found, report(found)


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("src/ottla/log/writes.pyx", "from ottla.runtime.partition import Partition"),
        ("src/ottla/log/writes.pxd", "from ottla.api.produce_compiled cimport Run"),
        ("src/ottla/wire/reads.pyx", "cimport ottla.log.run_writing"),
        ("src/ottla/newcomer/thing.pyx", "cdef int x = 1"),
        ("src/ottla/wire/reads.pyx", "x = 1\n" * 501),
    ],
)
def test_a_broken_rule_is_found(path: str, code: str) -> None:
    assert list(check_compiled(path, code))


def test_each_compiled_source_is_built() -> None:
    modules = {relative(path)[4:-4].replace("/", ".") for path in compiled_sources() if path.suffix == ".pyx"}
    assert modules == set(hook().MODULES)


@pytest.mark.parametrize("wish", ["", "1"])
def test_where_one_module_cannot_be_built_none_is_left(
    wish: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build, first = hook(), tmp_path / "src" / "ottla" / "wire" / "produced.so"
    first.parent.mkdir(parents=True)

    def fail_half_way(src: Path, into: Path) -> None:
        first.touch()
        raise RuntimeError("the second one does not compile")

    monkeypatch.setattr(build, "compile_modules", fail_half_way)
    monkeypatch.setenv("OTTLA_COMPILE", wish)
    with suppress(RuntimeError):
        build.CustomBuildHook(str(tmp_path), {}, None, None, str(tmp_path), "wheel").initialize("editable", {})
    assert not first.exists(), "the doctor would take it for all of them"


def test_what_is_compiled_is_what_the_sources_say() -> None:
    """An old one would be tested, and another one shipped."""
    try:
        from ottla.api.produce_compiled import BUILT_FROM
    except ImportError:
        headers = Path(sysconfig.get_path("include"), "Python.h")
        assert not (shutil.which("cc") and headers.exists()), "nothing is compiled though it could be: make setup"
        return
    assert hook().sources_digest(SRC) == BUILT_FROM, "the compiled modules are older than their sources: make setup"
