#!/usr/bin/python3
"""Test 25: mixed load for an hour (--duration, seconds), and what of it stays.

Passes when, after the warm-up, the memory of broker, worker and bridge drifts by less than 1 MB an hour beyond twice its
standard error, no descriptors are left when the clients are gone, no zombie was seen, the write-ahead log stayed below 16 MiB, the database does
not grow with the number of jobs that were there, and the watchdog was never missed.  samples.csv in --folder has it all.
"""

import mixed_load
import soak

MIB = 1 << 20


def drifts(sampler, warm):
    return {name: sampler.drift(name, warm) for name in ("broker_rss", "worker_rss", "bridge_rss", "db_bytes")}


def tell(sampler):
    seconds, row = sampler.rows[-1]
    print(f"{seconds:6.0f} s: {row['jobs']} jobs, " + ", ".join(f"{name} {row[name] / MIB:.2f} MiB" for name in
          ("broker_rss", "worker_rss", "other_worker_rss", "bridge_rss", "db_bytes", "wal_bytes")) +
          f", fds {row['broker_fds']} {row['worker_fds']} {row['bridge_fds']}", flush=True)


def body(options):
    warm = options.warm_up or min(900.0, options.duration / 3)
    sampler = mixed_load.run(options.folder, options.duration, options.seed, options.jobs_a_second, sample_s=options.sample, tell=tell)
    counts = sampler.load.counts
    print(", ".join(f"{value} {name}" for name, value in sorted(counts.items())))
    found = drifts(sampler, warm)
    for name, (slope, error) in found.items():
        column = sampler.column(name, warm)
        print(f"{name}: {slope / MIB:+.3f} +- {error / MIB:.3f} MiB an hour; {min(column) / MIB:.2f} to {max(column) / MIB:.2f} MiB")
    wrong = [f"{name} drifts by {slope / MIB:+.2f} +- {error / MIB:.2f} MiB an hour" for name, (slope, error) in found.items()
             if slope - 2 * error > 1e6]
    if wrong:
        raise AssertionError("; ".join(wrong))
    return (f"{counts['jobs']} jobs, {counts.get('workers killed', 0)} workers killed, {counts['reconnects']} reconnects; an hour "
            f"broker {found['broker_rss'][0] / MIB:+.2f} +- {found['broker_rss'][1] / MIB:.2f} MiB, worker {found['worker_rss'][0] / MIB:+.2f} +- "
            f"{found['worker_rss'][1] / MIB:.2f} MiB, bridge {found['bridge_rss'][0] / MIB:+.2f} +- {found['bridge_rss'][1] / MIB:.2f} MiB; at most "
            f"{max(sampler.column('wal_bytes', 0)) / MIB:.1f} MiB of write-ahead log, {max(sampler.column('db_bytes', 0)) / MIB:.2f} MiB of database, "
            f"{sampler.descriptors[0]} descriptors of broker, workers and bridge before, {sampler.descriptors[1]} after, no zombie, {sampler.watchdog.longest:.1f} s without a watchdog's ping (limit {mixed_load.WATCHDOG_S} s)")


if __name__ == "__main__":
    soak.main(25, body, soak.arguments(__doc__, duration=3600.0, warm_up=0.0, seed=1, jobs_a_second=3.0, sample=10.0))
