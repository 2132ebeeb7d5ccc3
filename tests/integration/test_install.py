"""What `cmake --install` puts where: a staged tree works as it stands, and others build against it."""

import os
import pathlib
import re
import shutil
import subprocess

import pytest

import staged
import xptychod

ROOT = pathlib.Path(__file__).resolve().parents[2]

CONSUMER = r"""
#include <stdio.h>
#include <xptychod/client.h>
#include <xptychod/protocol.h>

/* version: the library's; version SERVER: the daemon's, by a call. */
int main(int argc, char **argv)
{
    xpc_options options = {};
    xpc_client *client = NULL;
    xpc_error err;
    json_t *version = NULL;

    xpp_init();
    if (argc < 2) {
        printf("%s\n", xpp_version());
        return 0;
    }
    options.server = argv[1];
    if (xpc_open(&client, &options, &err) != XPC_OK || xpc_daemon_version(client, &version, &err) != XPC_OK) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    printf("%s\n", json_string_value(json_object_get(version, "version")));
    json_decref(version);
    xpc_close(client);
    return 0;
}
"""


def run(*command, **options):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=300, **options)
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    return staged.Staged(tmp_path_factory.mktemp("stage"), "daemon", "client", "devel")


@pytest.fixture(scope="module")
def version():
    stated = re.search(r"project\(xptychod VERSION (\S+)", (ROOT / "CMakeLists.txt").read_text())
    return stated.group(1)


@pytest.fixture
def installed_daemon(tree, tmp_path, monkeypatch):
    """The daemon of the staged tree."""
    monkeypatch.setattr(xptychod, "program", lambda name: str(tree.find(name)))
    daemon = xptychod.Daemon(tmp_path / "daemon")
    try:
        yield daemon.start()
        daemon.stop()
    finally:
        daemon.clean_up()


def programs(tree):
    return {path: path.rpartition("/")[0] for path in tree.files() if os.access(tree.prefix / path, os.X_OK)}


def test_programs_are_where_the_command_line_and_the_daemon_look(tree):
    found = programs(tree)
    for expected in ("bin/xptycho", "sbin/xptychod", "libexec/xptycho/xptycho-worker", "libexec/xptycho/xptycho-reader",
                     "libexec/xptycho/xptycho-zmq"):
        assert expected in found, sorted(found)
    assert not [path for path in found if path.rpartition("/")[2].startswith("test")]


def test_a_component_brings_what_it_is_for_and_nothing_else(tmp_path):
    client = staged.Staged(tmp_path / "client", "client").files()
    assert "bin/xptycho" in client and not [path for path in client if "xptychod" in path]
    devel = staged.Staged(tmp_path / "devel", "devel").files()
    headers = [path for path in devel if path.endswith(".h")]
    assert headers == ["include/xptychod/client.h", "include/xptychod/protocol.h"], "the engine's are nobody's but the daemon's"
    assert not [path for path in devel if not path.startswith(("include/", "lib"))]


def test_a_configuration_is_installed_once_and_then_left_alone(tmp_path):
    staged.Staged(tmp_path, "daemon")
    installed = next(tmp_path.rglob("etc/xptycho/xptychod.conf"))
    assert installed.read_bytes() == (ROOT / "deploy/xptychod.conf").read_bytes()
    installed.write_text("[http]\nport = 1\n")
    staged.Staged(tmp_path, "daemon")
    assert installed.read_text() == "[http]\nport = 1\n"


def test_no_installed_file_names_the_build_or_the_source(tree):
    """But for what the compiler writes into programs: __FILE__ in assert, debug information."""
    texts = [path for path in tree.files() if path not in programs(tree) and not path.endswith(".a")]
    assert len(texts) > 8
    for path in texts:
        text = (tree.prefix / path).read_bytes()
        for folder in (staged.build_folder(), ROOT, tree.folder):
            assert str(folder).encode() not in text, f"{path} names {folder}"


def test_the_version_is_that_of_the_project_everywhere(tree, version):
    assert run(tree.prefix / "bin/xptycho", "--version").splitlines()[0] == f"xptycho {version}"
    assert run(tree.prefix / "sbin/xptychod", "--version").split()[-1] == version
    assert re.search(r"^Version: (.*)$", tree.find("xptychod-client.pc").read_text(), re.M).group(1) == version
    assert f'PACKAGE_VERSION "{version}"' in tree.find("xptychodConfigVersion.cmake").read_text()
    openapi = tree.find("openapi.json").read_text()
    assert openapi == (ROOT / "protocol/openapi.json").read_text()


def test_the_staged_programs_find_each_other(tree, installed_daemon, tmp_path, version):
    """A scan by the worker, a look by the reader, a job through all of them: nothing of the build folder runs."""
    xptycho = tree.prefix / "bin/xptycho"
    scan = tmp_path / "scan.h5"
    run(xptycho, "simulate", "--frames-side", "32", "--grid", "6x6", "--output", scan)
    assert str(scan) in run(xptycho, "inspect", scan)
    job = installed_daemon.unix.submit({"scan": {"path": str(scan)}, "recon": {"iterations": 2}})
    assert installed_daemon.unix.finish(job["id"])["state"] == "succeeded"
    for pid, name in xptychod.processes_marked(installed_daemon.mark):
        assert os.readlink(f"/proc/{pid}/exe").startswith(str(tree.folder)), name
    assert f"xptychod {version} at unix:" in run(xptycho, "version", "--server", installed_daemon.runtime)


@pytest.fixture
def consumer(tmp_path):
    source = tmp_path / "consumer"
    source.mkdir()
    for suffix in ("c", "cc"):
        (source / f"main.{suffix}").write_text(CONSUMER)
    return source


def check(program, version, daemon):
    assert run(program).strip() == version
    assert run(program, f"unix:{daemon.ready['unix']}").strip() == version
    refused = subprocess.run([program, "unix:/nobody/is/there"], capture_output=True, text=True, timeout=60)
    assert refused.returncode == 1 and "/nobody/is/there" in refused.stderr


def test_a_project_builds_by_cmake(tree, consumer, version, installed_daemon):
    (consumer / "CMakeLists.txt").write_text(f"""
cmake_minimum_required(VERSION 3.25)
project(consumer LANGUAGES C)
find_package(xptychod {version} REQUIRED CONFIG)
add_executable(version main.c)
target_link_libraries(version PRIVATE xptychod::client)
add_executable(words main.c)                    # the protocol alone does not bring the client
target_link_libraries(words PRIVATE xptychod::protocol)
set_target_properties(words PROPERTIES EXCLUDE_FROM_ALL TRUE)
""")
    run("cmake", "-S", consumer, "-B", consumer / "build", "-G", staged.cache("CMAKE_GENERATOR"),
        f"-DCMAKE_PREFIX_PATH={tree.prefix}", "-DCMAKE_C_FLAGS=-Wall -Werror")
    run("cmake", "--build", consumer / "build")
    check(consumer / "build/version", version, installed_daemon)
    commands = run("cmake", "--build", consumer / "build", "--clean-first", "--verbose")
    assert "-Wshadow" not in commands, "how this project is compiled is not how its users are"


def test_another_minor_version_is_not_taken(tree, consumer, version):
    major, minor, _ = version.split(".")
    (consumer / "CMakeLists.txt").write_text(f"""
cmake_minimum_required(VERSION 3.25)
project(consumer LANGUAGES C)
find_package(xptychod {major}.{int(minor) + 1} REQUIRED CONFIG)
""")
    done = subprocess.run(["cmake", "-S", consumer, "-B", consumer / "build", "-G", staged.cache("CMAKE_GENERATOR"),
                           f"-DCMAKE_PREFIX_PATH={tree.prefix}"],
                          capture_output=True, text=True, timeout=60)
    assert done.returncode != 0 and f"version: {version}" in done.stderr


@pytest.mark.parametrize("compiler, source, standard", [("cc", "main.c", "-std=c17"), ("c++", "main.cc", "-std=c++20")])
def test_a_project_builds_by_pkg_config(tree, consumer, version, installed_daemon, compiler, source, standard):
    if not shutil.which(compiler):
        pytest.skip(f"there is no {compiler}")
    environment = dict(os.environ, PKG_CONFIG_PATH=str(tree.find("xptychod-client.pc").parent))
    assert run("pkg-config", "--modversion", "xptychod-client", env=environment).strip() == version
    flags = run("pkg-config", "--cflags", "--libs", "xptychod-client", env=environment).split()
    run(compiler, standard, "-Wall", "-Wextra", "-Wno-missing-field-initializers", "-Werror", source, "-o", "version", *flags, cwd=consumer)
    check(consumer / "version", version, installed_daemon)
