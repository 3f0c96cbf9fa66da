"""Code blocks of the recipes in docs/."""

from pathlib import Path
import re
from typing import Any

DOCS = Path(__file__).parents[2] / 'docs'


def code_of(page: str, language: str = 'python') -> str:
    """Return the only code block of a page in a language."""
    text = (DOCS / f'{page}.md').read_text()
    (code,) = re.findall(rf'```{language}\n(.*?)```', text, re.DOTALL)
    return str(code)


def names_of(page: str) -> dict[str, Any]:
    """Return what the Python code of a page defines."""
    names: dict[str, Any] = {'__name__': page}
    exec(compile(code_of(page), page, 'exec', dont_inherit=True), names)
    return names
