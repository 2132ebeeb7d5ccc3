"""What keeps the service answering under load: places for readers, descriptors, clients that dawdle."""

import concurrent.futures

import xptychod

PROBES = 16  # readers that look at submissions at a time


def reader_after(tmp_path, before):
    """A reader that runs the real one after lines of shell; `running` has a file for each that runs."""
    running = tmp_path / "running"
    running.mkdir()
    path = tmp_path / "reader.sh"
    path.write_text(f'#!/bin/sh\ntouch "{running}/$$"\n{before}\n"{xptychod.program("xptycho-reader")}" "$@"\ncode=$?\n'
                    f'rm "{running}/$$"\nexit $code\n')
    path.chmod(0o755)
    return str(path)


def submit_all(pool, daemon, path, count):
    job = {"scan": {"path": path}, "recon": {"iterations": 1}}
    return [pool.submit(daemon.api.post, "/v1/jobs", job) for _ in range(count)]


def test_a_storm_of_submissions_starts_few_readers_at_a_time(make_daemon, tmp_path, scan_file):
    counts = tmp_path / "counts"
    daemon = make_daemon("--reader-program", reader_after(tmp_path, f'ls "{tmp_path}/running" | wc -l >> "{counts}"'))
    with concurrent.futures.ThreadPoolExecutor(48) as pool:
        answers = submit_all(pool, daemon, scan_file, 48)
        assert [answer.result().status for answer in answers] == [201] * 48
    seen = [int(line) for line in counts.read_text().split()]
    assert len(seen) >= 48
    assert 2 <= max(seen) <= PROBES + 1, "one more for the job that runs"


def test_readers_that_hang_keep_nobody_from_submitting(make_daemon, tmp_path, scan_file):
    hang = tmp_path / "hang"
    hang.mkdir()
    daemon = make_daemon("--reader-program", reader_after(tmp_path, f"""
for i in $(seq {PROBES}); do
    if mkdir "{hang}/$i" 2>/dev/null; then
        while [ ! -e "{hang}/over" ]; do sleep 0.1; done
        break
    fi
done"""))
    with concurrent.futures.ThreadPoolExecutor(2 * PROBES) as pool:
        stuck = submit_all(pool, daemon, scan_file, PROBES)
        xptychod.wait_until(lambda: len(list(hang.iterdir())) == PROBES, "every place is taken by one that hangs")
        assert [answer.result().status for answer in submit_all(pool, daemon, scan_file, 4)] == [201] * 4
        assert not any(answer.done() for answer in stuck)
        (hang / "over").touch()
        assert [answer.result().status for answer in stuck] == [201] * PROBES
