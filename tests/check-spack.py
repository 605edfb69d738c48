#!/usr/bin/env python3
"""check-spack.py PREFIX: looks at the recipe where there is no Spack: what it says of this project is true, and its test passes with what is installed in PREFIX.

Spack's functions are played by ones that note how they are called.
"""

import importlib.util
import re
import subprocess
import sys
import types
from pathlib import Path

root = Path(__file__).resolve().parent.parent


def fail(text):
    sys.exit(f"check-spack: {text}")


class Executable:
    def __init__(self, path):
        self.path = str(path)

    def __call__(self, *arguments, output=None, error=None):
        ended = subprocess.run([self.path, *map(str, arguments)], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=300)
        if ended.returncode != 0:
            fail(f"{self.path} ends with status {ended.returncode}: {ended.stdout}")
        return ended.stdout


class Prefix(str):
    """A path whose attributes are the paths below it."""

    def __getattr__(self, name):
        return Prefix(f"{self}/{name}")


def check_outputs(expected, said):
    if expected not in said:
        fail(f"its test: {expected!r} is not in what the program says: {said}")


def find_libraries(name, root, shared, recursive):
    return [str(path) for path in Path(root).rglob(f"{name}.{'so' if shared else 'a'}")]


def cache_extra_test_sources(package, files):
    for file in files:
        if not (root / file).is_file():
            fail(f"it keeps {file}, which does not exist")


def load(notes):
    """The recipe's class; `notes` gets the directives."""
    package = types.ModuleType("spack.package")

    def directive(name):
        return lambda *words, **options: notes.append((name, words, options))

    for name in ("license", "version", "variant", "depends_on", "conflicts", "requires"):
        setattr(package, name, directive(name))
    package.run_after = lambda phase: lambda method: method
    package.join_path = lambda *parts: "/".join(parts)
    package.EnvironmentModifications = object
    for thing in (Executable, check_outputs, find_libraries, cache_extra_test_sources):
        setattr(package, thing.__name__, thing)
    makefile = types.ModuleType("makefile")
    makefile.MakefilePackage = type("MakefilePackage", (), {})
    for name in ("spack", "spack_repo", "spack_repo.builtin", "spack_repo.builtin.build_systems"):
        sys.modules[name] = types.ModuleType(name)
    sys.modules["spack.package"] = package
    sys.modules["spack_repo.builtin.build_systems.makefile"] = makefile
    # The recipe leaves nothing beside itself.
    sys.dont_write_bytecode = True
    spec = importlib.util.spec_from_file_location("package", root / "packaging/spack/package.py")
    recipe = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(recipe)
    return recipe.Unipgas


def main():
    if len(sys.argv) != 2:
        sys.exit(f"usage: {sys.argv[0]} PREFIX")
    notes = []
    package = load(notes)()
    package.prefix = Prefix(Path(sys.argv[1]).resolve())
    package.test_suite = types.SimpleNamespace(current_test_cache_dir=str(root))

    manifest = (root / "Cargo.toml").read_text()
    version, rust, licence = (re.search(rf'^{key} = "(.*)"', manifest, re.MULTILINE).group(1) for key in ("version", "rust-version", "license"))
    for said in (
        ("version", (version,)),
        ("depends_on", (f"rust@{rust}:",)),
        ("license", (licence,)),
    ):
        if said not in [note[:2] for note in notes]:
            fail(f"it does not say {said[0]}({said[1][0]!r}), which Cargo.toml does")

    targets = set(re.findall(r"^([a-z-]+):", (root / "Makefile").read_text(), re.MULTILINE))
    called = {word for word in package.build_targets + package.install_targets if "=" not in word}
    if not called or not called <= targets:
        fail(f"the Makefile has no {', '.join(sorted(called - targets))}")
    package.check()
    package.keep_test_sources()
    if not package.libs:
        fail(f"it finds no library in {package.prefix}")
    package.test_hello()
    print("check-spack: the recipe is all right")


main()
