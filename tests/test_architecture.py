"""What holds the tree together: imports point down, heavy packages load late, names mean one thing, code stays small.

Every rule is one test over all files and lists what breaks it.
"""

import ast
import importlib
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

SRC = Path(__file__).parents[1] / "src"
PACKAGES = sorted(path.name for path in SRC.iterdir() if (path / "__init__.py").is_file())
CORE = "gridprobe"
TREES = {path: ast.parse(path.read_text(encoding="utf-8"), str(path)) for path in sorted(SRC.rglob("*.py"))}
MODULES = {".".join(path.relative_to(SRC).with_suffix("").parts).removesuffix(".__init__"): path for path in TREES}

HEAVY = (
    "torch",
    "transformers",
    "av",
    "httpx",
    "ray",
    "fastapi",
    "matplotlib",
    "scipy",
    "pyarrow",
    "pandas",
    "lancedb",
)
LIGHT = (*PACKAGES, "gridprobe.video", "gridprobe.selectors", "gridprobe_eval.benchmarks", "gridprobe.cli")
"""What may be imported without loading any of these packages."""

MAX_FILE_LINES = 800
MAX_FUNCTION_LINES = 60
MAX_ARGUMENTS = 6
MAX_MODULES_IN_A_FOLDER = 15
MOST = {"modules": 76, "classes": 200, "settings": 25}
"""The core may only become smaller than this; lower a number when it has."""

FORBIDDEN_MODULES = {"pickle", "cPickle", "cloudpickle", "dill", "joblib", "marshal", "shelve"}
FORBIDDEN_CALLS = {
    *("eval", "exec", "os.system", "os.popen", "subprocess.getoutput", "subprocess.getstatusoutput"),
    *("asyncio.create_subprocess_shell", "torch.load", "pandas.read_pickle", "pd.read_pickle"),
    *("yaml.load", "yaml.load_all", "yaml.full_load", "yaml.unsafe_load"),
}
REQUIRED_ARGUMENTS = {"from_pretrained": "trust_remote_code", "Image.open": "formats"}
"""Without it the call asks standard input whether to run a checkpoint's code, or starts Ghostscript on a "PNG"."""


def name_of(path: Path) -> str:
    return path.relative_to(SRC).as_posix()


# Direction.


def imported(tree: ast.Module) -> set[str]:
    """The modules of ours that a module imports when it is imported; those inside functions may point anywhere."""
    names = {
        name
        for node in tree.body
        if isinstance(node, ast.ImportFrom | ast.Import)
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)]
        )
    }
    return {name for name in names if name in MODULES}


def cycles(graph: dict[str, set[str]]) -> list[list[str]]:
    """The modules that are left when those whose imports are all settled are taken away again and again."""
    left = dict(graph)
    while settled := [name for name, needs in left.items() if not needs & left.keys() - {name}]:
        for name in settled:
            del left[name]
    return [sorted(left)] if left else []


def test_imports_have_no_cycle() -> None:
    packages = {name for name, path in MODULES.items() if path.name == "__init__.py"}
    graph = {name: imported(TREES[path]) for name, path in MODULES.items()}

    assert cycles({name: needs - {p for p in packages if name.startswith(p)} for name, needs in graph.items()}) == []
    assert cycles({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == [["a", "b", "c"]]


def test_the_core_imports_no_sibling_and_nobody_imports_the_command_line() -> None:
    wrong = []
    for path, tree in TREES.items():
        package = path.relative_to(SRC).parts[0]
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom | ast.Import):
                names = [node.module or ""] if isinstance(node, ast.ImportFrom) else [a.name for a in node.names]
                tops = {name.partition(".")[0] for name in names}
                if package == CORE and tops & set(PACKAGES) - {CORE}:
                    wrong.append(f"{name_of(path)}:{node.lineno} imports a sibling, {names[0]}")
                inside = path.parent.name == "cli" or path.stem in ("__main__", "command", "cli")
                if not inside and any(name.startswith("gridprobe.cli") for name in names):
                    wrong.append(f"{name_of(path)}:{node.lineno} imports the command line")

    assert wrong == []


@pytest.mark.parametrize("module", LIGHT)
def test_importing_it_loads_nothing_heavy(module: str) -> None:
    program = f"import sys, {module}; print(*sorted(set(sys.modules) & set({HEAVY!r})))"

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stdout.split()) == (0, []), done.stderr


# Size.


def functions(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def too_large(tree: ast.Module) -> list[str]:
    """Functions with too many lines or too many positional arguments."""
    wrong = []
    for each in functions(tree):
        names = [argument.arg for argument in (*each.args.posonlyargs, *each.args.args)]
        count = len(names) - (names[:1] in (["self"], ["cls"]))
        if count > MAX_ARGUMENTS:
            wrong.append(f"{each.name} takes {count} positional arguments")
        if (lines := (each.end_lineno or each.lineno) - each.lineno + 1) > MAX_FUNCTION_LINES:
            wrong.append(f"{each.name} has {lines} lines")
    return wrong


def test_files_functions_and_folders_are_small() -> None:
    lengths = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in TREES}
    folders = Counter(path.parent for path in TREES if path.name != "__init__.py")

    assert {name_of(path): lines for path, lines in lengths.items() if lines > MAX_FILE_LINES} == {}
    assert {name_of(path): wrong for path, tree in TREES.items() if (wrong := too_large(tree))} == {}
    assert {name_of(path): count for path, count in folders.items() if count > MAX_MODULES_IN_A_FOLDER} == {}


def test_the_check_of_sizes_sees_what_is_too_large() -> None:
    fits = "def f():\n" + "    x = 1\n" * (MAX_FUNCTION_LINES - 1)

    assert too_large(ast.parse(fits)) == []
    assert too_large(ast.parse(fits + "    x = 1\n")) == [f"f has {MAX_FUNCTION_LINES + 1} lines"]
    assert too_large(ast.parse("class A:\n def f(self, a, b, c, d, e, g, *, h): ...")) == []
    assert too_large(ast.parse("def f(a, /, b, c, d, e, g, h): ...")) == ["f takes 7 positional arguments"]


def test_the_core_only_becomes_smaller() -> None:
    from dataclasses import fields

    from gridprobe.options import Options

    core = [tree for path, tree in TREES.items() if path.relative_to(SRC).parts[0] == CORE]
    classes = [node for tree in core for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    counts = {"modules": len(core), "classes": len(classes), "settings": len(fields(Options))}

    assert {name: count for name, count in counts.items() if count > MOST[name]} == {}


# Names.


def declared_all(tree: ast.Module) -> list[str] | None:
    for node in tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if any(isinstance(target, ast.Name) and target.id == "__all__" for target in targets):
            return list(ast.literal_eval(node.value))  # type: ignore[attr-defined]
    return None


def test_a_name_means_one_thing() -> None:
    classes = Counter(
        node.name
        for tree in TREES.values()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    stems = Counter(path.stem for path in TREES if path.stem not in ("__init__", "__main__", "base", "command"))

    assert {name: count for name, count in classes.items() if count > 1} == {}
    assert {name: count for name, count in stems.items() if count > 2} == {}


def test_packages_say_what_is_public_and_it_exists() -> None:
    wrong = []
    for module, path in MODULES.items():
        names = declared_all(TREES[path])
        if names and path.name != "__init__.py":
            wrong.append(f"{module} has __all__, which is for packages; a leading _ says what is private")
        if names:
            package = importlib.import_module(module)
            wrong += [f"{module}.{name}" for name in names if not hasattr(package, name) or names.count(name) > 1]

    assert wrong == []


def test_the_package_offers_exactly_its_public_names() -> None:
    program = "import gridprobe; print(*dir(gridprobe)); [getattr(gridprobe, name) for name in gridprobe.__all__]"

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    assert set(done.stdout.split()) == set(importlib.import_module("gridprobe").__all__)


def test_every_folder_of_code_is_a_package_or_it_would_not_be_installed() -> None:
    assert [name_of(path.parent) for path in TREES if not (path.parent / "__init__.py").is_file()] == []


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


# A20, A23 of tests/reliability.md
def test_nothing_is_unpickled_evaluated_sent_to_a_shell_or_swallowed() -> None:
    assert {name_of(path): wrong for path, tree in TREES.items() if (wrong := forbidden(tree))} == {}


# A20, A23 of tests/reliability.md
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
