#!/usr/bin/python3
"""Test 9: a device is lost in the middle of a job, --rounds times, and three times in a row.

Passes when the worker is replaced and the job goes on each time, readiness dips and recovers, the next job on the device succeeds;
and when the third loss in a row drains the device, is seen in readiness and in the list of devices, and an undrain ends it.
"""

import fault_rounds
import soak
import test_isolation


def body(options):
    scan, _ = fault_rounds.scan_files(options.folder)
    tests = (test_isolation.test_a_worker_whose_device_is_lost_is_replaced_and_the_job_goes_on,
             test_isolation.test_a_device_that_is_lost_three_times_in_a_row_is_drained_and_visible,
             test_isolation.test_a_device_that_works_in_between_is_not_drained)
    for number in range(options.rounds):
        for k, test in enumerate(tests):
            make, done = fault_rounds.bench_of(f"{number}-{k}-", options.folder)
            try:
                test(make, scan)
            finally:
                done()
    return f"{7 * options.rounds} devices lost, each worker replaced; {options.rounds} drained after three in a row and taken back"


if __name__ == "__main__":
    soak.main(9, body, soak.arguments(__doc__, rounds=10))
