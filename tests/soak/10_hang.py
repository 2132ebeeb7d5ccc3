#!/usr/bin/python3
"""Test 10: workers that stand still in four ways (--rounds), side by side: replaced by the deadline, and by a cancel.

Passes when a job that stands still is told so and its worker gone within the deadline (2 s here), the grace (1 s) and 5 s more,
when a cancel is answered at once and enforced within the grace and 5 s, and when a job that is slow is left alone.
"""

import fault_rounds
import soak
import test_isolation


def body(options):
    scan, _ = fault_rounds.scan_files(options.folder)
    for number in range(options.rounds):
        for test in (test_isolation.test_a_worker_that_stands_still_is_replaced, test_isolation.test_a_cancel_is_answered_at_once_and_enforced,
                     test_isolation.test_a_job_that_makes_two_workers_stand_still_is_poison, test_isolation.test_a_slow_job_is_left_alone):
            make, done = fault_rounds.bench_of(f"{number}{test.__name__[-20:]}", options.folder)
            try:
                test(make, scan, *([options.folder] if "tmp_path" in test.__code__.co_varnames[:test.__code__.co_argcount] else []))
            finally:
                done()
    return f"{7 * options.rounds} workers that stood still replaced in time, {options.rounds} poison jobs, {options.rounds} slow jobs left alone"


if __name__ == "__main__":
    soak.main(10, body, soak.arguments(__doc__, rounds=10))
