"""Test 21: hostile HDF5 files, alone under strace and through a service that runs another job meanwhile.

    tests/soak/run.sh 21 [MUTANTS [MUTANTS_THROUGH_THE_SERVICE]]     default 1500 200

Passes when every file is refused with its reason or read, none takes 30 s, nothing outside the roots was opened, and
broker, worker and the other job go on."""

import collections
import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))

import hostile_files  # noqa: E402
import hostile_run  # noqa: E402
import scans  # noqa: E402
import xptychod  # noqa: E402


def main():
    count, through = (int(a) for a in (sys.argv[1:3] + ["1500", "200"][len(sys.argv[1:3]):]))
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        scan = scans.make()
        roots, traces = [folder / "in"], folder / "traces"
        if not hostile_run.can_trace(folder):
            raise AssertionError("processes cannot be traced here; strace and ptrace are needed")
        program = hostile_run.tracer(traces)
        made = hostile_files.build(scan, folder / "in", folder / "out")
        slowest = hostile_run.check_set(made, roots, program)
        print(f"{len(made)} hostile files refused, the slowest in {slowest:.1f} s", flush=True)
        seeds = hostile_files.seeds(scan, folder / "seeds")
        (folder / "mutants").mkdir()
        counts, slow = hostile_run.check_mutants(seeds, count, folder / "mutants", program)
        print(f"{count} damaged files: {dict(counts)}, the slowest in {slow:.1f} s", flush=True)
        outside = hostile_run.opened_outside(traces, [folder / "in", folder / "mutants"])
        looked = len(list(traces.glob("trace.*")))
        print(f"{looked} traced readers; opened outside the roots: {sorted(outside) or 'nothing'}"
              f"{'' if hostile_run.landlock() else ' (this kernel has no Landlock)'}", flush=True)
        assert not outside or not hostile_run.landlock(), outside

        slow_scan = scans.make(n=64, points=12, step=6, seed=2).write(folder / "in" / "slow.h5")
        paths = [path for path, _ in made.values()]
        for i, (mutant, data) in enumerate(hostile_files.mutants(seeds, through, seed=2)):
            paths.append(folder / "in" / f"m{i}-{mutant}.h5")
            paths[-1].write_bytes(data)
        daemon = xptychod.Daemon(folder / "d", "--cpu-workers", "2", "--data-root", str(folder / "in"))
        try:
            daemon.start()
            reasons = hostile_run.through_the_service(
                daemon, paths, {"scan": {"path": slow_scan}, "recon": {"iterations": 100000}, "devices": {"cpu_threads": 1}})
            daemon.stop()
        finally:
            print(daemon.log_tail(3))
            daemon.clean_up()
        print(f"{len(paths)} of them through the service: {dict(reasons)}")
    total = collections.Counter(counts)
    print(f"soak 21: passed: {len(made)} hostile and {count} damaged files ({total['refused']} refused, {total['accepted']} read, "
          f"{total['died']} ended the reader, {total['late']} were ended at the deadline of {hostile_run.LIMIT_S} s), slowest of the others {max(slow, slowest):.1f} s, nothing outside opened by {looked} readers; "
          f"{len(paths)} through the service, which went on")


try:
    main()
except AssertionError as error:
    print(f"soak 21: FAILED: {error}")
    sys.exit(1)
