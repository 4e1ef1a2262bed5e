"""Compiles the hot path while a wheel or an editable install is made, where there is a C compiler.

Nothing depends on it: interpreted code does the same (`ottla.api.produce_group` chooses). Where there is no compiler,
or none of Python's headers, the package is built without, and says so. OTTLA_COMPILE=1 makes that an error,
OTTLA_COMPILE=0 does not try.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

MODULES = (
    "ottla.wire.produced",
    "ottla.log.run_writing",
    "ottla.runtime.partition_runs",
    "ottla.api.produce_compiled",
)
DIRECTIVES = {
    "language_level": "3",
    "binding": False,
    "boundscheck": False,
    "cdivision": True,
    "initializedcheck": False,
    "wraparound": False,
}


def sources_digest(src: Path) -> str:
    """What the compiled modules were made from; the modules themselves know it, so that an old one is noticed."""
    digest = hashlib.sha256()
    for path in sorted((src / "ottla").rglob("*.p[yx]*")):
        if path.suffix in (".pyx", ".pxd"):
            digest.update(path.relative_to(src).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def compile_modules(src: Path, into: Path) -> list[Path]:
    """Compile all of them; returns where they are, below `into`. Raises whatever goes wrong."""
    if platform.python_implementation() != "CPython":
        raise RuntimeError("it is made for CPython")
    from Cython.Build import cythonize
    from setuptools import Distribution, Extension  # type: ignore[import-untyped]

    with tempfile.TemporaryDirectory() as scratch:
        extensions = [
            Extension(
                module,
                [str(src / f"{module.replace('.', '/')}.pyx")],
                define_macros=[("OTTLA_SOURCES", f'"{sources_digest(src)}"')],
                extra_compile_args=[] if sys.platform == "win32" else ["-O3", "-g0"],
            )
            for module in MODULES
        ]
        compiled = cythonize(  # type: ignore[no-untyped-call]
            extensions, include_path=[str(src)], build_dir=scratch, compiler_directives=DIRECTIVES, quiet=True
        )
        command = Distribution({"ext_modules": compiled}).get_command_obj("build_ext")
        command.build_lib, command.build_temp = str(into), scratch
        command.ensure_finalized()
        command.run()
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    return [into / f"{module.replace('.', '/')}{suffix}" for module in MODULES]


def remove_compiled(src: Path) -> None:
    for module in MODULES:
        for path in src.glob(f"{module.replace('.', '/')}.*"):
            if path.suffix in (".so", ".pyd"):
                path.unlink()


class CustomBuildHook(BuildHookInterface):  # type: ignore[type-arg]
    """What hatchling calls before it collects the files, and after that."""

    _scratch = ""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        src = Path(self.root, "src")
        if self.target_name != "wheel":
            return
        if version == "editable":
            remove_compiled(src)  # An old one must not outlive its sources.
            self._compile(src, src)
            return
        self._scratch = tempfile.mkdtemp(prefix="ottla-compiled-")
        made = self._compile(src, Path(self._scratch))
        if made:
            build_data["pure_python"] = False
            build_data["infer_tag"] = True
            build_data["force_include"].update({str(path): path.relative_to(self._scratch).as_posix() for path in made})

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if self._scratch:
            shutil.rmtree(self._scratch, ignore_errors=True)

    def _compile(self, src: Path, into: Path) -> list[Path]:
        wish = os.environ.get("OTTLA_COMPILE", "")
        if wish == "0":
            return []
        try:
            return compile_modules(src, into)
        except (Exception, SystemExit) as error:
            remove_compiled(into)  # Some may have been built.
            if wish == "1":
                raise
            self.app.display_warning(f"ottla is built without its compiled hot path, so it is slower: {error}")
            return []
