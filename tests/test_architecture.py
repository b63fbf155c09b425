"""What holds the tree together: imports point down, heavy packages load late, files and functions stay small."""

import ast
import importlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "src" / "gridprobe"
FILES = sorted(PACKAGE.rglob("*.py"))

LEVELS = (
    {"errors", "files", "cores", "progress", "registry", "text", "_version"},
    {
        "question",
        "prompts",
        "drafts",
        "reply",
        "grid",
        "importance",
        "flops",
        "subtitles",
        "statistics",
        "stretches",
    },
    {"video", "budget", "calibration", "calibration_store", "pace"},
    {"backends", "encoders", "limits"},
    {"selectors", "rotations", "collage"},
    {
        "settings",
        "setup",
        "given",
        "drafting",
        "answer",
        "stages",
        "together",
        "pipeline",
        "asynchronous",
        "comparison",
        "demo",
        "gridworld",
        "benchmarks",
    },
    {"evaluation"},
    {"report"},
    {"serving"},
    {"cli", "integrations"},
)
"""Lowest first. A module imports only from its own level or a lower one, also inside functions."""

ALLOWED = {
    ("answer", "report"): "answer.save_map() and answer.save_report() are promised by the public API",
}
"""Imports that point up, with the reason. They must stand inside a function."""

EXEMPT = {"__init__.py", "__main__.py"}
"""The two doors of the package may import anything."""

HEAVY = ("torch", "transformers", "av", "httpx", "ray", "fastapi", "matplotlib", "scipy", "pyarrow", "pandas")
LIGHT_MODULES = (
    "gridprobe",
    "gridprobe.video",
    "gridprobe.backends",
    "gridprobe.encoders",
    "gridprobe.selectors",
    "gridprobe.benchmarks",
    "gridprobe.cli",
)

MAX_FILE_LINES = 800
MAX_FUNCTION_LINES = 60
MAX_ARGUMENTS = 6

FORBIDDEN_MODULES = {"pickle", "cPickle", "cloudpickle", "dill", "joblib", "marshal", "shelve"}
FORBIDDEN_CALLS = {
    *("eval", "exec", "os.system", "os.popen", "subprocess.getoutput", "subprocess.getstatusoutput"),
    *("asyncio.create_subprocess_shell", "torch.load", "pandas.read_pickle", "pd.read_pickle"),
    *("yaml.load", "yaml.load_all", "yaml.full_load", "yaml.unsafe_load"),
}
REQUIRED_ARGUMENTS = {"from_pretrained": "trust_remote_code", "Image.open": "formats"}
"""Without it the call asks standard input whether to run a checkpoint's code, or starts Ghostscript on a "PNG"."""

each_file = pytest.mark.parametrize("file", FILES, ids=lambda file: file.relative_to(PACKAGE).as_posix())


def tree_of(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"), str(file))


def top_name(file: Path) -> str:
    """The module or sub-package directly under gridprobe that a file belongs to."""
    return file.relative_to(PACKAGE).parts[0].removesuffix(".py")


def dotted_name(file: Path) -> str:
    parts = ("gridprobe", *file.relative_to(PACKAGE).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def level(name: str) -> int:
    for number, names in enumerate(LEVELS):
        if name in names:
            return number
    raise AssertionError(f"gridprobe.{name} has no place in LEVELS of {__file__}: put it on the level it belongs to")


def is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING")


def running_imports(node: ast.AST, inside: bool = False) -> Iterator[tuple[ast.Import | ast.ImportFrom, bool]]:
    """Every import that runs, and whether it stands inside a function; those for the type checker do not run."""
    if isinstance(node, ast.Import | ast.ImportFrom):
        yield node, inside
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
        inside = True
    children = node.orelse if is_type_checking(node) else ast.iter_child_nodes(node)  # type: ignore[attr-defined]
    for child in children:
        yield from running_imports(child, inside)


def own_imports(tree: ast.Module, module: str, is_package: bool) -> list[tuple[str, bool]]:
    """Top names under gridprobe that a module imports ("" for the package itself), and whether inside a function."""
    found = []
    for node, inside in running_imports(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            base = module.split(".")[: None if is_package else -1]
            start = base[: len(base) - node.level + 1] if node.level else []
            origin = ".".join([*start, *([node.module] if node.module else [])])
            names = [f"{origin}.{alias.name}" for alias in node.names] if origin == "gridprobe" else [origin]
        for name in names:
            package, _, rest = name.partition(".")
            if package == "gridprobe":
                first = rest.split(".")[0]
                found.append(
                    (first if (PACKAGE / first).is_dir() or (PACKAGE / f"{first}.py").is_file() else "", inside)
                )
    return found


def upward_imports(tree: ast.Module, module: str, is_package: bool = False) -> list[str]:
    """Complaints about imports that point up."""
    importer = module.split(".")[1]
    complaints = []
    for target, inside in own_imports(tree, module, is_package):
        # The package itself offers everything below the doors, so only cli and web may import it.
        height = level(target) if target else len(LEVELS) - 2
        if height > level(importer) and not (inside and (importer, target) in ALLOWED):
            complaints.append(f"{module} imports gridprobe{'.' if target else ''}{target}, which stands above it")
    return complaints


# Direction.


@each_file
def test_every_module_has_a_level(file: Path) -> None:
    assert (file.parent == PACKAGE and file.name in EXEMPT) or level(top_name(file)) >= 0


@each_file
def test_imports_point_down(file: Path) -> None:
    exempt = file.parent == PACKAGE and file.name in EXEMPT

    assert exempt or upward_imports(tree_of(file), dotted_name(file), file.name == "__init__.py") == []


@each_file
def test_nobody_imports_cli_or_web(file: Path) -> None:
    targets = {target for target, _ in own_imports(tree_of(file), dotted_name(file), file.name == "__init__.py")}

    assert top_name(file) in ("cli", "web", "__main__") or not targets & {"cli", "web"}


def test_no_name_is_on_two_levels() -> None:
    assert sum(map(len, LEVELS)) == len(set.union(*LEVELS))


def test_every_allowed_upward_import_is_still_needed() -> None:
    used = {
        (top_name(file), target) for file in FILES for target, _ in own_imports(tree_of(file), dotted_name(file), False)
    }

    assert set(ALLOWED) <= used


def test_unknown_module_is_named_in_the_complaint() -> None:
    with pytest.raises(AssertionError, match=r"gridprobe\.surprise has no place in LEVELS"):
        level("surprise")


@pytest.mark.parametrize(
    ("source", "module"),
    [
        ("import gridprobe.budget", "gridprobe.grid"),
        ("from gridprobe.budget import top", "gridprobe.grid"),
        ("from gridprobe import budget", "gridprobe.grid"),
        ("from gridprobe import Question", "gridprobe.pipeline"),
        ("from .budget import top", "gridprobe.grid"),
        ("from . import budget", "gridprobe.grid"),
        ("from ..budget import top", "gridprobe.grid.inner"),
        ("def f():\n    from gridprobe.budget import top", "gridprobe.grid"),
        ("try:\n    import gridprobe.budget\nexcept ImportError:\n    pass", "gridprobe.grid"),
        ("if TYPE_CHECKING:\n    pass\nelse:\n    import gridprobe.budget", "gridprobe.grid"),
        ("from gridprobe.report import save_map", "gridprobe.answer"),
    ],
)
def test_check_sees_imports_that_point_up(source: str, module: str) -> None:
    assert len(upward_imports(ast.parse(source), module)) == 1


@pytest.mark.parametrize(
    ("source", "module"),
    [
        ("import gridprobe.grid", "gridprobe.importance"),
        ("from gridprobe.errors import UsageError", "gridprobe.grid"),
        ("if TYPE_CHECKING:\n    from gridprobe.pipeline import ask", "gridprobe.grid"),
        ("import numpy, gridworld", "gridprobe.grid"),
        ("from .errors import UsageError", "gridprobe.grid"),
        ("from gridprobe import Question", "gridprobe.cli.ask"),
        ("def f():\n    from gridprobe.report import save_map", "gridprobe.answer"),
    ],
)
def test_check_lets_other_imports_pass(source: str, module: str) -> None:
    assert upward_imports(ast.parse(source), module) == []


# Weight.


@pytest.mark.parametrize("module", LIGHT_MODULES)
def test_importing_it_loads_nothing_heavy(module: str) -> None:
    program = f"import sys, {module}; print(*sorted(set(sys.modules) & set({HEAVY!r})))"

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stdout.split()) == (0, []), done.stderr


# Size.


@each_file
def test_file_is_short(file: Path) -> None:
    assert len(file.read_text(encoding="utf-8").splitlines()) <= MAX_FILE_LINES


@each_file
def test_functions_are_short(file: Path) -> None:
    assert long_functions(tree_of(file)) == []


@each_file
def test_functions_take_few_positional_arguments(file: Path) -> None:
    assert greedy_functions(tree_of(file)) == []


def functions(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def long_functions(tree: ast.Module) -> list[tuple[str, int]]:
    lengths = [(f.name, (f.end_lineno or f.lineno) - f.lineno + 1) for f in functions(tree)]
    return [(name, lines) for name, lines in lengths if lines > MAX_FUNCTION_LINES]


def greedy_functions(tree: ast.Module) -> list[tuple[str, int]]:
    counts = []
    for f in functions(tree):
        names = [argument.arg for argument in (*f.args.posonlyargs, *f.args.args)]
        counts.append((f.name, len(names) - (names[:1] in (["self"], ["cls"]))))
    return [(name, count) for name, count in counts if count > MAX_ARGUMENTS]


def test_check_sees_a_long_function() -> None:
    fits = "def f():\n" + "    x = 1\n" * (MAX_FUNCTION_LINES - 1)

    assert long_functions(ast.parse(fits)) == []
    assert long_functions(ast.parse(fits + "    x = 1\n")) == [("f", MAX_FUNCTION_LINES + 1)]


def test_check_counts_positional_arguments_without_self() -> None:
    assert greedy_functions(ast.parse("def f(a, b, c, d, e, g, *, h, i): ...")) == []
    assert greedy_functions(ast.parse("class A:\n def f(self, a, b, c, d, e, g): ...")) == []
    assert greedy_functions(ast.parse("def f(a, /, b, c, d, e, g, h): ...")) == [("f", 7)]


# Public names.


def declared_all(tree: ast.Module) -> list[str] | None:
    for node in tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if any(isinstance(target, ast.Name) and target.id == "__all__" for target in targets):
            return list(ast.literal_eval(node.value))  # type: ignore[attr-defined]
    return None


def is_public(file: Path) -> bool:
    names = file.relative_to(PACKAGE).with_suffix("").parts
    return not any(name.startswith("_") for name in names if name != "__init__")


@each_file
def test_public_module_says_what_is_public(file: Path) -> None:
    tree = tree_of(file)
    only_a_docstring = len(tree.body) == (ast.get_docstring(tree) is not None)

    assert declared_all(tree) is not None or not is_public(file) or (only_a_docstring and file.parent != PACKAGE)


@each_file
def test_public_names_exist_and_are_listed_once(file: Path) -> None:
    names = declared_all(tree_of(file)) or []
    module = importlib.import_module(dotted_name(file)) if names else None

    assert [name for name in names if not hasattr(module, name)] == []
    assert len(names) == len(set(names))


def test_public_names_of_the_package_are_exactly_what_it_offers() -> None:
    modules = {top_name(file) for file in FILES}
    program = "import gridprobe; print(*dir(gridprobe)); print(*gridprobe.__all__)"

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    offered, declared = (set(line.split()) for line in done.stdout.splitlines())
    public = {name for name in offered if not name.startswith("_") and name not in modules}
    assert public == declared - {"__version__"}


def test_every_folder_of_code_is_a_package_or_it_would_not_be_installed() -> None:
    assert [str(folder) for folder in {file.parent for file in FILES} if not (folder / "__init__.py").is_file()] == []


# Forbidden things.


def forbidden(tree: ast.Module) -> list[str]:
    """Unpickling, evaluating text, shells, blind excepts and calls that lack an argument that makes them safe."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names if alias.name.split(".")[0] in FORBIDDEN_MODULES]
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in FORBIDDEN_MODULES:
            found.append(str(node.module))
        if isinstance(node, ast.ImportFrom):
            found += [name for a in node.names if (name := f"{node.module}.{a.name}") in FORBIDDEN_CALLS]
        if isinstance(node, ast.Call):
            found += forbidden_call(node)
        if isinstance(node, ast.ExceptHandler) and is_blind(node):
            found.append("blind except")
    return found


def forbidden_call(node: ast.Call) -> list[str]:
    name = ast.unparse(node.func)
    switches = {k.arg for k in node.keywords if not (isinstance(k.value, ast.Constant) and k.value.value is False)}
    return (
        [name] * (name in FORBIDDEN_CALLS)
        + sorted({"shell", "allow_pickle", "trust_remote_code"} & {*map(str, switches)})
        + [f"{name} without {argument}" for argument in missing_arguments(name, node)]
        + ["weights that may be pickled"] * may_unpickle(node)
    )


def may_unpickle(node: ast.Call) -> bool:
    """Whether a call that loads weights, and so asks what was loaded, takes them from other files than safetensors."""
    given = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
    return "output_loading_info" in given and given.get("use_safetensors") != "True"


def missing_arguments(name: str, node: ast.Call) -> list[str]:
    given = {keyword.arg for keyword in node.keywords}
    return [
        argument
        for call, argument in REQUIRED_ARGUMENTS.items()
        if f".{name}".endswith(f".{call}") and argument not in given
    ]


def is_blind(handler: ast.ExceptHandler) -> bool:
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(kind is None or ast.unparse(kind) in ("Exception", "BaseException") for kind in kinds)


# A20, A23 of docs/reliability.md
@each_file
def test_nothing_is_unpickled_evaluated_sent_to_a_shell_or_swallowed(file: Path) -> None:
    assert forbidden(tree_of(file)) == []


# A20, A23 of docs/reliability.md
@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "import dill as d",
        "from pickle import loads",
        "eval('1')",
        "exec(text)",
        "os.system('ls')",
        "from os import system",
        "subprocess.getoutput('ls')",
        "asyncio.create_subprocess_shell('ls')",
        "yaml.load(text)",
        "from yaml import unsafe_load",
        "subprocess.run('ls', shell=True)",
        "subprocess.run('ls', shell=flag)",
        "torch.load(path)",
        "from torch import load",
        "np.load(path, allow_pickle=True)",
        "AutoModel.from_pretrained(name, trust_remote_code=True)",
        "AutoModel.from_pretrained(name, trust_remote_code=flag)",
        "kind.from_pretrained(name, **options)",
        "read(name, kind, folder, output_loading_info=True)",
        "read(name, kind, folder, output_loading_info=True, use_safetensors=flag)",
        "Image.open(path)",
        "PIL.Image.open(path, 'r')",
        "try:\n    f()\nexcept:\n    pass",
        "try:\n    f()\nexcept Exception:\n    pass",
        "try:\n    f()\nexcept (KeyError, BaseException) as error:\n    raise",
    ],
)
def test_check_sees_what_is_forbidden(source: str) -> None:
    assert len(forbidden(ast.parse(source))) == 1


@pytest.mark.parametrize(
    "source",
    [
        "model.eval()",
        "cursor.exec()",
        "json.load(file)",
        "subprocess.run(['ls'], shell=False)",
        "np.load(path, allow_pickle=False)",
        "AutoModel.from_pretrained(name, trust_remote_code=False)",
        "read(name, kind, folder, output_loading_info=True, use_safetensors=True)",
        "Image.open(path, formats=FORMATS)",
        "path.open('rb')",
        "try:\n    f()\nexcept (KeyError, OSError):\n    pass",
    ],
)
def test_check_lets_the_rest_pass(source: str) -> None:
    assert forbidden(ast.parse(source)) == []
