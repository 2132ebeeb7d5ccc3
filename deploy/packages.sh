# The Debian packages of this project, stated once; sourced by deploy/quickstart.sh and tests/run.sh.
#
#   xptychod_packages_build   compile and run the programs
#   xptychod_packages_tests   what the test suite needs beside them
#   xptychod_packages_servers web servers for the test of the proxy recipes, promtool for the metrics, and Slurm for that of
#                             batch jobs; their packages start a service where systemd runs, so
#                             there it is left to the user
#   xptychod_packages_reference   for PyPI's reference program, several hundred megabytes; only the
#                             interchange test needs them
#   xptychod_install NAME...  installs those that are missing, as root or through sudo; says which

xptychod_packages_build=(
    gcc libc6-dev cmake ninja-build pkg-config python3 curl ca-certificates
    libmicrohttpd-dev libjansson-dev libsqlite3-dev libinih-dev nettle-dev libsystemd-dev
    libzmq3-dev libcurl4-gnutls-dev
    libhdf5-dev liblz4-dev zlib1g-dev libfftw3-dev libpng-dev libarchive-dev
)
xptychod_packages_tests=(
    libcmocka-dev slowhttptest
    python3-pytest python3-numpy python3-scipy python3-h5py python3-zmq python3-venv python3-jsonschema
    systemd strace openssl g++ faketime
)
xptychod_packages_servers=(nginx caddy prometheus slurm-wlm munge)
xptychod_packages_reference=(python3-torch)

xptychod_install() {
    local name missing=() run=()
    for name in "$@"; do
        # dpkg-query knows packages that were removed, too: the state must be read, not the exit status.
        case "$(dpkg-query -W -f '${db:Status-Status}' "$name" 2>/dev/null)" in
            installed) ;;
            *) missing+=("$name") ;;
        esac
    done
    [ ${#missing[@]} -gt 0 ] || return 0
    if [ "$(id -u)" -ne 0 ]; then
        if ! command -v sudo >/dev/null; then
            echo "these packages are missing and there is no sudo: ${missing[*]}; run as root: apt-get install ${missing[*]}" >&2
            return 1
        fi
        run=(sudo)
    fi
    echo "installing ${missing[*]}"
    run+=(env DEBIAN_FRONTEND=noninteractive)
    "${run[@]}" apt-get install -y -q --no-install-recommends "${missing[@]}" >/dev/null 2>&1 && return 0
    # A fresh machine has no package lists yet, an old one has stale lists.
    "${run[@]}" apt-get update -q >/dev/null || return 1
    "${run[@]}" apt-get install -y -q --no-install-recommends "${missing[@]}" >/dev/null
}
