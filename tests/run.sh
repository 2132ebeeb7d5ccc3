#!/usr/bin/env bash
# Everything, from a fresh Debian 12: installs what is missing, builds with warnings as errors, runs the
# whole suite and ends with ctest's closing lines.  docs/testing.md tells what is in it.
#
#   tests/run.sh [ctest options]      for instance: tests/run.sh -R integration-zmq
#
#   XPTYCHOD_TEST_BUILD    build folder (default build/tests)
#   XPTYCHOD_TEST_REFERENCE=0   do not fetch PyPI's reference program; the interchange test is skipped
set -euo pipefail
cd "$(dirname "$0")/.."
. deploy/packages.sh

build=${XPTYCHOD_TEST_BUILD:-build/tests}
cores=$(nproc)

xptychod_install "${xptychod_packages_build[@]}" "${xptychod_packages_tests[@]}"
# Not onto a machine that would then serve a page on port 80; the proxy test is skipped without them.
[ -d /run/systemd/system ] || xptychod_install "${xptychod_packages_servers[@]}"

# PyPI's program in an environment of its own; Debian's torch is smaller than PyPI's by gigabytes.
reference=
if [ "${XPTYCHOD_TEST_REFERENCE:-1}" != 0 ]; then
    venv=$PWD/$build/venv
    if ! "$venv/bin/python" -c 'import xptycho' 2>/dev/null; then
        echo "fetching the reference program"
        mkdir -p "$build"
        xptychod_install "${xptychod_packages_reference[@]}" &&
            /usr/bin/python3 -m venv --system-site-packages "$venv" &&
            "$venv/bin/pip" install -q --disable-pip-version-check --no-deps xptycho || true
    fi
    # writes the compressed frames that detectors write; without it their reading is tested with chunks made here
    "$venv/bin/python" -c 'import hdf5plugin' 2>/dev/null ||
        "$venv/bin/pip" install -q --disable-pip-version-check --no-deps hdf5plugin || true
    if "$venv/bin/python" -c 'import xptycho' 2>/dev/null; then
        reference=$venv/bin/python
    else
        echo "the reference program cannot be had here; the interchange test will be skipped"
    fi
fi

cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo -DXPTYCHOD_WERROR=ON -DXPTYCHOD_TESTS=ON \
    -DXPTYCHOD_CUDA=ON -DXPTYCHOD_FAULTS=ON -DXPTYCHOD_TEST_SANITIZED=ON -DXPTYCHOD_PYTHON=/usr/bin/python3 -DXPTYCHOD_REFERENCE_PYTHON="$reference"
cmake --build "$build" -j "$cores"
exec ctest --test-dir "$build" -j 2 --output-on-failure "$@"
