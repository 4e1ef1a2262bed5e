"""Scripts that are started in place of a program, kept in the user's cache."""

from __future__ import annotations

import stat
import tempfile
from pathlib import Path


def kept_script(path: Path, text: str) -> Path:
    """A script with this text, which others may write or start at the same time."""
    if path.exists() and path.read_text() == text:
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as made:
        made.write(text)
    Path(made.name).chmod(stat.S_IRWXU)
    Path(made.name).replace(path)
    return path
