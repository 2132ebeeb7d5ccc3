"""A staged installation of the build under test."""

import os
import pathlib
import subprocess

import pytest


def build_folder():
    """The build that the programs under test come from."""
    folder = pathlib.Path(os.environ["XPTYCHOD_BIN"]).parent
    if not (folder / "cmake_install.cmake").exists():
        pytest.skip(f"'{folder}' is no build folder of CMake")
    return folder


def cache(name):
    """A variable of the build's cache."""
    for line in (build_folder() / "CMakeCache.txt").read_text().splitlines():
        key, _, value = line.partition("=")
        if key.partition(":")[0] == name:
            return value
    return None


class Staged:
    """DESTDIR with the components named; prefix is where the tree stands now."""

    def __init__(self, folder, *components):
        self.folder = pathlib.Path(folder)
        for component in components:
            done = subprocess.run(["cmake", "--install", build_folder(), "--component", component],
                                  env=dict(os.environ, DESTDIR=str(folder)), capture_output=True, text=True)
            assert done.returncode == 0, done.stdout + done.stderr
        self.prefix = self.folder / cache("CMAKE_INSTALL_PREFIX").lstrip("/")

    def files(self):
        """Paths below the prefix, sorted."""
        return sorted(str(path.relative_to(self.prefix)) for path in self.prefix.rglob("*") if not path.is_dir())

    def find(self, name):
        """The one file of that name."""
        found = [path for path in self.folder.rglob(name) if not path.is_dir()]
        assert len(found) == 1, (name, found)
        return found[0]
