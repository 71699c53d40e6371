"""Count the modules, lines and docstrings of the package.

Usage: python -m benchmarks.source_size [DIRECTORY]

A line of code is a line that holds a token other than a comment or a docstring.
"""

import ast
import io
import sys
import tokenize
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

_SOURCE = Path(__file__).parent.parent / "src" / "dubito"
_NO_CODE = {
    tokenize.COMMENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
    tokenize.INDENT,
    tokenize.NEWLINE,
    tokenize.NL,
}


@dataclass(frozen=True, slots=True)
class Size:
    """How large one module is, in lines."""

    lines: int
    docstrings: int
    code: int

    def __add__(self, other: "Size") -> "Size":
        return Size(
            self.lines + other.lines,
            self.docstrings + other.docstrings,
            self.code + other.code,
        )


def module_size(text: str) -> Size:
    """Return the numbers of lines, of docstring lines and of lines of code."""
    documented: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(
            node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
        ) and (ast.get_docstring(node, clean=False) is not None):
            docstring = node.body[0]
            documented.update(range(docstring.lineno, (docstring.end_lineno or 0) + 1))
    code: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in _NO_CODE:
            code.update(range(token.start[0], token.end[0] + 1))
    return Size(len(text.splitlines()), len(documented), len(code - documented))


def main() -> None:
    """Print the size of each package, then of all of them."""
    source = Path(sys.argv[1]) if len(sys.argv) > 1 else _SOURCE
    modules = sorted(source.rglob("*.py"))
    sizes = {path: module_size(path.read_text()) for path in modules}
    packages: dict[str, list[Size]] = {}
    for path, size in sizes.items():
        parts = path.relative_to(source).parts
        packages.setdefault(parts[0] if len(parts) > 1 else ".", []).append(size)
    print(f"{'package':<16}{'modules':>8}{'lines':>8}{'code':>8}{'docstrings':>12}")
    for package, found in [*sorted(packages.items()), ("all", list(sizes.values()))]:
        total = sum(found, Size(0, 0, 0))
        documented = total.docstrings / total.lines
        print(f"{package:<16}{len(found):>8}{total.lines:>8}{total.code:>8}{documented:>12.1%}")
    names = Counter(path.name for path in modules if path.name != "__init__.py")
    repeated = sorted(name for name, count in names.items() if count > 1)
    print(f"repeated file names: {len(repeated)} ({', '.join(repeated)})")


if __name__ == "__main__":
    main()
