#!/bin/bash
# From a fresh Debian 12 to a reconstruction, in a private folder and without touching the system
# beyond its packages:
#
#   deploy/quickstart.sh [--output FOLDER] [SCAN.h5]
#
# installs what is missing, builds a release, starts xptychod as an ordinary process, simulates a scan
# of an integrated-circuit-like object (or takes SCAN.h5), submits it over HTTP, prints the data error
# as it falls, fetches result and pictures into FOLDER (default ./quickstart-out), prints the error to
# the truth, and stops the daemon.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=$root/build/release
bin=$build/bin
out=quickstart-out
scan=
iterations=100

usage() {
    sed -n '2,/^set -euo/{/^set/d;s/^# \{0,1\}//;p;}' "${BASH_SOURCE[0]}"
}

say() {
    printf '\n== %s\n' "$*"
}

die() {
    printf 'quickstart: %s\n' "$*" >&2
    exit 1
}

while [ $# -gt 0 ]; do
    case $1 in
        -h | --help) usage; exit 0 ;;
        --output) [ $# -ge 2 ] || die "--output needs a folder"; out=$2; shift 2 ;;
        --output=*) out=${1#--output=}; shift ;;
        -*) echo "quickstart: unknown option '$1'; see --help" >&2; exit 2 ;;
        *) [ -z "$scan" ] || { echo "quickstart: one scan at a time" >&2; exit 2; }; scan=$1; shift ;;
    esac
done
[ -z "$scan" ] || [ -r "$scan" ] || die "cannot read the scan '$scan'"
[ -z "$scan" ] || scan=$(realpath "$scan")

# A fixed place: the path of a socket has at most 107 bytes, which a long TMPDIR would exceed.
work=$(mktemp -d /tmp/xptycho-quickstart.XXXXXX)
daemon=

clean_up() {
    local status=$?
    trap - EXIT INT TERM
    if [ -n "$daemon" ] && kill -TERM "$daemon" 2>/dev/null; then
        wait "$daemon" || true
    fi
    if [ "$status" -ne 0 ] && [ -s "$work/xptychod.log" ]; then
        echo "the last lines of the daemon's log:" >&2
        tail -n 20 "$work/xptychod.log" >&2
    fi
    rm -rf "$work"
    exit "$status"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

mkdir -p "$out"
out=$(realpath "$out")

say "packages"
# shellcheck source=deploy/packages.sh
. "$root/deploy/packages.sh"
xptychod_install "${xptychod_packages_build[@]}"

say "build"
(cd "$root" && cmake --preset release >"$work/configure.log") || { cat "$work/configure.log"; exit 1; }
cmake --build "$build"

say "daemon"
"$bin/xptychod" --user --port 0 --state-dir "$work/state" --runtime-dir "$work/run" \
    >"$work/xptychod.log" 2>&1 </dev/null &
daemon=$!
for _ in $(seq 300); do
    [ ! -e "$work/run/ready.json" ] || break
    kill -0 "$daemon" 2>/dev/null || die "the daemon ended at once"
    sleep 0.1
done
[ -e "$work/run/ready.json" ] || die "the daemon is not ready after 30 s"
member() { # of ready.json
    python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))[sys.argv[2]])' "$work/run/ready.json" "$1"
}
url=$(member http)
# The token goes through a file: arguments are visible to every user of the machine.
printf 'Authorization: Bearer %s\n' "$(cat "$(member token_file)")" >"$work/header"
call() {
    curl --silent --show-error --fail-with-body --header "@$work/header" "$@"
}
echo "xptychod runs at $url"

own=yes
if [ -z "$scan" ]; then
    say "simulated scan"
    own=
    scan=$out/scan.h5
    "$bin/xptycho" simulate --object chip --output "$scan" --overwrite --json >"$work/simulated.json"
    "$bin/xptycho" inspect "$scan"
fi

say "job"
python3 - "$scan" "$iterations" "$work/simulated.json" >"$work/job.json" <<'PYTHON'
import json, os, sys

scan, iterations, simulated = sys.argv[1:]
recon = {"iterations": int(iterations)}
if os.path.exists(simulated):  # how far the start probe is from its focus is known then
    recon["fresnel_distance_m"] = json.load(open(simulated))["defocus_m"]
print(json.dumps({"name": "quickstart", "scan": {"path": scan}, "recon": recon}))
PYTHON
cat "$work/job.json"
call --header 'Content-Type: application/json' --data-binary "@$work/job.json" --dump-header "$work/answer" \
    --output "$work/submitted.json" "$url/v1/jobs" || { cat "$work/submitted.json"; exit 1; }
# Location: /v1/jobs/ID
job=$(sed -n 's/^location: *//Ip' "$work/answer" | tr -d '\r')
job=$url/v1/jobs/${job##*/}

call --no-buffer "$job/events" | tee "$out/progress.txt"
[ "$(tail -n 1 "$out/progress.txt")" = "# end succeeded" ] || die "the job did not succeed"

say "result"
call --output "$out/result.h5" "$job/result/data"
for what in object_phase object_magnitude probe_phase probe_magnitude; do
    call --output "$out/$what.png" "$job/preview.png?what=$what"
done
if [ -z "$own" ]; then
    "$bin/xptycho" compare "$out/result.h5" "$scan:/truth/object"
fi

kill -TERM "$daemon"
wait "$daemon" || die "the daemon did not stop in order"
daemon=
say "done"
echo "in $out: result.h5, object_phase.png, object_magnitude.png, probe_phase.png, probe_magnitude.png, progress.txt"
