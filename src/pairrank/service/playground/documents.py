"""The playground's documents: what the standard library of this machine says about itself.

Source files are parsed, never imported: some modules open browsers or print poems when imported. What is
written in C has no source here, so a short list of modules that are safe to import gives its docstrings.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
import sysconfig
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType

# Programs and tests that live beside the library, and twins in Python of modules in C: nobody looks for them.
_LEFT_OUT = frozenset(
    {"test", "tests", "idlelib", "turtledemo", "lib2to3", "site-packages", "__pycache__", "_bundled"}
    | {"_pydecimal", "_pyio", "_pydatetime", "_pylong"}
)

# Known by another name than that of their file.
_KNOWN_AS = {"posixpath": "os.path"}

# Modules in C that have no side effects when imported, and the name under which people know them.
_IN_C = {
    "builtins": "builtins", "math": "math", "cmath": "cmath", "itertools": "itertools",
    "_operator": "operator", "time": "time", "sys": "sys", "gc": "gc", "_collections": "collections",
    "_functools": "functools", "marshal": "marshal", "atexit": "atexit", "array": "array", "zlib": "zlib",
    "binascii": "binascii", "select": "select", "unicodedata": "unicodedata", "_io": "io",
    "_struct": "struct", "_random": "random", "_socket": "socket", "posix": "os", "nt": "os",
    "_thread": "_thread", "_datetime": "datetime", "_decimal": "decimal", "_heapq": "heapq",
    "_bisect": "bisect", "_csv": "csv", "_json": "json", "fcntl": "fcntl", "mmap": "mmap", "pwd": "pwd",
    "grp": "grp", "resource": "resource", "signal": "signal", "_signal": "signal", "_hashlib": "hashlib",
    "_bz2": "bz2", "_lzma": "lzma", "_sqlite3": "sqlite3", "_queue": "queue", "_weakref": "weakref",
    "_contextvars": "contextvars", "_pickle": "pickle", "_statistics": "statistics",
}  # fmt: skip

_SELF = re.compile(r"\(\$\w+(, /)?(, )?")


@dataclass(frozen=True, slots=True)
class Document:
    """One module, class, function or method, with what its docstring says."""

    name: str
    qualified: str
    module: str
    kind: str
    signature: str
    text: str

    @property
    def summary(self) -> str:
        """The first sentence of the docstring, or as much as a line or two should hold."""
        paragraph = " ".join(self.text.split("\n\n", 1)[0].split())
        sentence, stop, _ = paragraph.partition(". ")
        line = sentence + stop.strip()
        return line if len(line) <= 200 else line[:199].rstrip() + "…"

    @property
    def private(self) -> bool:
        return any(part.startswith("_") for part in self.qualified.split("."))

    @property
    def deprecated(self) -> bool:
        return "deprecated" in self.text.lower()


def source_files() -> list[tuple[str, Path]]:
    """(module, file) for every source file of the standard library, by module name."""
    root = Path(sysconfig.get_path("stdlib"))
    found = []
    for name in sys.stdlib_module_names:
        for path in (*root.glob(f"{name}.py"), *root.glob(f"{name}/**/*.py")):
            parts = path.relative_to(root).with_suffix("").parts
            if not _LEFT_OUT.intersection(parts) and all(map(str.isidentifier, parts)):
                module = ".".join(parts).removesuffix(".__init__")
                found.append((_KNOWN_AS.get(module, module), path))
    return sorted(found)


def collect(
    files: Iterable[tuple[str, Path]], tick: Callable[[], object] = lambda: None
) -> tuple[list[Document], Counter[str]]:
    """The documents of ``files`` and of the modules in C, and in how many files each module is imported.

    ``tick`` is called after each file, for a progress bar. Of two documents with one name the first stays.
    """
    documents: dict[str, Document] = {}
    imports: Counter[str] = Counter()
    for module, path in files:
        try:
            tree = ast.parse(path.read_bytes())
        except (OSError, SyntaxError, ValueError):  # lib2to3 keeps grammar samples of other Pythons
            tree = ast.Module(body=[], type_ignores=[])
        imports.update(_imported(tree))
        for document in _in_source(module, tree):
            documents.setdefault(document.qualified, document)
        tick()
    for document in _in_c():
        documents.setdefault(document.qualified, document)
    return [documents[name] for name in sorted(documents)], imports


def _imported(tree: ast.Module) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            found.add(node.module)
    return found


def _in_source(module: str, tree: ast.Module) -> Iterator[Document]:
    text = _clean(ast.get_docstring(tree))
    if text:
        yield Document(module.rpartition(".")[2], module, module, "module", "", text)
    yield from _in_body(module, module, tree.body, inside_class=False)


def _in_body(module: str, owner: str, body: list[ast.stmt], *, inside_class: bool) -> Iterator[Document]:
    for node in body:
        if not isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)) or _dunder(node.name):
            continue
        qualified = f"{owner}.{node.name}"
        text = _clean(ast.get_docstring(node))
        if isinstance(node, ast.ClassDef):
            if text:
                makers = [m for m in node.body if isinstance(m, ast.FunctionDef) and m.name == "__init__"]
                signature = f"({ast.unparse(makers[0].args)})" if makers else ""
                yield Document(node.name, qualified, module, "class", signature, text)
            yield from _in_body(module, qualified, node.body, inside_class=True)
        elif text:
            kind = "method" if inside_class else "function"
            yield Document(node.name, qualified, module, kind, f"({ast.unparse(node.args)})", text)


def _in_c() -> Iterator[Document]:
    for name, public in _IN_C.items():
        try:
            module = import_module(name)
        except ImportError:  # not every machine has all of them
            continue
        yield from _in_module(module, public)


def _in_module(module: ModuleType, public: str) -> Iterator[Document]:
    text = _clean(inspect.getdoc(module))
    if text:
        yield Document(public.rpartition(".")[2], public, public, "module", "", text)
    for name, thing in sorted(vars(module).items()):
        if _dunder(name) or not callable(thing) or not isinstance(getattr(thing, "__doc__", None), str):
            continue
        qualified = name if public == "builtins" else f"{public}.{name}"
        kind = "class" if inspect.isclass(thing) else "function"
        yield Document(name, qualified, public, kind, *_c_words(name, thing))
        if inspect.isclass(thing):
            for method, what in sorted(vars(thing).items()):
                doc = getattr(what, "__doc__", None)
                if not _dunder(method) and isinstance(doc, str) and doc.strip():
                    yield Document(method, f"{qualified}.{method}", public, "method", *_c_words(method, what))


def _c_words(name: str, thing: object) -> tuple[str, str]:
    """Signature and text of something in C, whose docstring may begin with the signature."""
    text = _clean(thing.__doc__)
    signature = getattr(thing, "__text_signature__", None)
    if isinstance(signature, str):
        return _SELF.sub("(", signature), text
    lines = text.split("\n")
    n_calls = next((i for i, line in enumerate(lines) if f"{name}(" not in line.split(" ")[0]), len(lines))
    rest = _clean("\n".join(lines[n_calls:]))
    if not n_calls or not rest:
        return "", text
    return lines[0][lines[0].index("(") :].rstrip(":"), rest


def _clean(text: str | None) -> str:
    return inspect.cleandoc(text).strip() if text else ""


def _dunder(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")
