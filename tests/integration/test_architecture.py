"""Dependencies point one way, and the tree names no machine.

Reads the #include lines of every C file.  `client -> protocol <- daemon -> engine`, and inside the engine
`io -> core -> backend <- cpu`, with `math` below everything (docs/architecture.md, section 5).
"""

import pathlib
import re
import subprocess

import pytest

import xptychod

ROOT = pathlib.Path(__file__).resolve().parents[2]

# Area -> areas whose headers it may include beside its own.
ALLOWED = {
    "protocol/include": set(),
    "protocol": {"protocol/include"},
    "client/include": {"protocol/include"},
    "client": {"protocol/include", "client/include"},
    "engine/include": set(),
    "engine/math": {"engine/include"},
    "engine/backend": {"engine/include", "engine/math"},
    "engine/core": {"engine/include", "engine/math", "engine/backend"},
    "engine/cpu": {"engine/include", "engine/math", "engine/backend"},
    "engine/cuda": {"engine/include", "engine/math", "engine/backend"},  # emu by its include path, as the real headers
    "engine/emu": set(),
    "engine/io": set(),
    "engine/io/read": {"engine/include", "engine/math", "engine/core", "engine/io"},
    "engine/io/write": {"engine/include", "engine/math", "engine/core", "engine/io"},
    "daemon/broker": {"protocol/include", "engine/include"},
    "daemon/worker": {"protocol/include", "engine/include", "engine/io/write", "engine/io/read"},
    "daemon/reader": {"protocol/include", "engine/include", "engine/io", "engine/io/read", "engine/io/write"},
    "daemon/zmq": {"protocol/include"},
}

# Library header -> areas that may include it.
LIBRARIES = {
    "hdf5.h": {"engine/io/read", "engine/io/write", "daemon/reader", "daemon/worker"},
    "fftw3.h": {"engine/cpu", "engine/emu", "daemon/worker"},
    "microhttpd.h": {"daemon/broker"},
    "sqlite3.h": {"daemon/broker"},
    "ini.h": {"daemon/broker"},
    "systemd/sd-daemon.h": {"daemon/broker"},
    "systemd/sd-journal.h": {"daemon/broker"},
    "zmq.h": {"daemon/zmq"},
    "curl/curl.h": {"client", "client/include", "daemon/zmq"},
    "png.h": {"daemon/worker"},
    "archive.h": {"daemon/reader", "engine/io/read"},
}
NO_JSON = "engine/"  # no HTTP, no JSON, no sockets below this folder
CUDA_HEADERS = {"engine/cuda/api.h"}  # the only file that includes them
CUDA = re.compile(r"^(cuda|cufft|nccl|nvml)")
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]+([<"])([^">]+)[">]', re.M)


def tracked():
    done = subprocess.run(["git", "-C", ROOT, "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
                          capture_output=True, check=False)
    if done.returncode:
        pytest.skip(f"not a git checkout: {done.stderr.decode().strip()}")
    return [name for name in done.stdout.decode().split("\0") if name and (ROOT / name).is_file()]


def area_of(name):
    for area in sorted(ALLOWED, key=len, reverse=True):
        if name.startswith(area + "/"):
            return area
    return None


@pytest.fixture(scope="module")
def sources():
    return [name for name in tracked() if name.endswith((".c", ".h", ".cu")) and not name.startswith("tests/")]


def find_header(includer, wanted, sources):
    """The file that a quoted include means: beside the includer, else by its path's end."""
    beside = pathlib.PurePosixPath(includer).parent / wanted
    if str(beside) in sources:
        return str(beside)
    ends = [name for name in sources if name.endswith("/" + wanted)]
    near = [name for name in ends if area_of(name) == area_of(includer)]
    return (near or ends or [None])[0]


def test_every_source_belongs_to_an_area(sources):
    assert len(sources) > 50
    assert [name for name in sources if area_of(name) is None] == []


BELOW = "engine/backend/util.h"  # the error jump and heap memory, for the whole engine


def test_no_include_points_back(sources):
    wrong, seen = [], 0
    for name in sources:
        area = area_of(name)
        for quote, wanted in INCLUDE.findall((ROOT / name).read_text()):
            header = find_header(name, wanted, sources) if quote == '"' or wanted.startswith("xptychod/") else None
            if header:
                seen += 1
                if header == BELOW and area.startswith("engine/"):
                    continue
                if area_of(header) != area and area_of(header) not in ALLOWED.get(area, ()):
                    wrong.append(f"{name} includes {header}")
    assert seen > 100, "the includes are really found"
    assert not wrong, "\n".join(wrong)


def test_libraries_stay_in_their_folders(sources):
    wrong = []
    for name in sources:
        area = area_of(name)
        for _, wanted in INCLUDE.findall((ROOT / name).read_text()):
            if wanted in LIBRARIES and area not in LIBRARIES[wanted]:
                wrong.append(f"{name} includes <{wanted}>")
            if wanted == "jansson.h" and name.startswith(NO_JSON):
                wrong.append(f"{name} includes <{wanted}>: the engine knows no JSON")
            if CUDA.match(wanted) and area != "engine/emu" and name not in CUDA_HEADERS:
                wrong.append(f"{name} includes <{wanted}>")
    assert not wrong, "\n".join(wrong)


def test_the_engine_neither_prints_nor_exits(sources):
    calls = re.compile(r"\b(printf|fprintf\s*\(\s*stderr|fprintf\s*\(\s*stdout|exit|abort|getenv|setenv|putenv|puts)\s*\(")
    wrong = []
    for name in sources:
        if name.startswith("engine/") and not name.startswith("engine/emu/"):  # a stand-in for a driver, in tests only
            text = re.sub(r"/\*.*?\*/", "", (ROOT / name).read_text(), flags=re.S)
            wrong += [f"{name}: {match.group(0)}" for match in calls.finditer(text)]
    assert not wrong, "\n".join(wrong)


def test_linked_programs_carry_no_library_of_others():
    """What the table of docs/architecture.md promises of the built programs."""
    forbidden = {"xptychod": ("libhdf5", "libfftw", "libcuda", "libzmq", "libpng"),
                 "xptycho": ("libhdf5", "libfftw", "libcuda", "libzmq", "libsqlite3", "libmicrohttpd"),
                 "xptycho-zmq": ("libhdf5", "libfftw", "libsqlite3", "libmicrohttpd"),
                 "xptycho-worker": ("libcuda", "libcufft", "libnccl", "libsqlite3", "libmicrohttpd", "libzmq"),
                 "xptycho-reader": ("libfftw", "libcuda", "libsqlite3", "libmicrohttpd", "libzmq")}
    for program, libraries in forbidden.items():
        path = xptychod.program(program)
        needed = subprocess.run(["readelf", "-d", path], capture_output=True, text=True, check=True).stdout
        direct = re.findall(r"NEEDED.*\[(.*)\]", needed)
        assert direct, program
        assert not [d for d in direct if d.startswith(libraries)], (program, direct)


def test_the_tree_names_no_machine():
    folders = "|".join(("wor" + "k", "far" + "m", "hom" + "e", "roo" + "t", "User" + "s", "mnt"))
    pattern = re.compile(rb"(?<![\w.$}~-])/(?:" + folders.encode() + rb")/(?!me/)[A-Za-z]")  # 'me' is nobody
    wrong = []
    for name in tracked():
        data = (ROOT / name).read_bytes()
        if b"\0" not in data[:4096]:
            wrong += [f"{name}: {data[m.start():m.start() + 40]!r}" for m in pattern.finditer(data)]
    assert not wrong, "\n".join(wrong)


def test_the_top_level_holds_what_was_agreed_and_nothing_else():
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False).stdout.split("\n")
    if tracked == [""]:
        pytest.skip("not a git checkout")
    agreed = {"CMakeLists.txt", "CMakePresets.json", "LICENSE", "README.md", "client", "daemon", "deploy", "docs", "engine",
              "protocol", "systemd", "tests"}
    top = {name.split("/")[0] for name in tracked if name}
    assert {name for name in top if not name.startswith(".")} == agreed
