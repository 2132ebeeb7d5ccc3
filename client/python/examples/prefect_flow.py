"""A Prefect flow that reconstructs a scan and fetches the result.

With Prefect installed the two decorators are Prefect's, and the flow has its retries, its logs and its page;
without it they are the few lines below, and the flow is plain Python:

    python3 prefect_flow.py SCAN.h5 RESULT.h5 [ITERATIONS]

A task that is retried must not do its work twice.  Here the Idempotency-Key is made of the flow run and the
scan: when a task dies after its submission, its retry gets the job that is already running.  A failed
reconstruction fails the flow with the service's own words.
"""

import functools
import pathlib
import sys
import uuid

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))  # not needed where the module is installed

import xptycho_client  # noqa: E402

try:
    from prefect import flow, task
    from prefect.runtime import flow_run

    def run_id():
        return flow_run.id
except ImportError:
    RUN_ID = str(uuid.uuid4())

    def run_id():
        return RUN_ID

    def flow(function):
        return function

    def task(retries=0):
        def decorate(function):
            @functools.wraps(function)
            def attempt(*arguments):
                for left in range(retries, -1, -1):
                    try:
                        return function(*arguments)
                    except Exception as error:
                        if left == 0:
                            raise
                        print(f"{function.__name__} is tried again: {error}")
            return attempt
        return decorate


class ReconstructionFailed(Exception):
    pass


@task(retries=2)
def submit(path, iterations):
    job = {"name": pathlib.Path(path).stem, "scan": {"path": path}, "recon": {"iterations": iterations}}
    key = uuid.uuid5(uuid.NAMESPACE_URL, f"{run_id()}:{path}")  # a path may have letters that a key may not
    return xptycho_client.submit(job, idempotency_key=str(key))["id"]


@task(retries=2)
def wait(job, timeout):
    ended = xptycho_client.wait(job, timeout)
    if ended["state"] != "succeeded":
        raise ReconstructionFailed(f"job {job} {ended['state']}: {ended['reason']}: {ended['detail']}")
    return ended["result"]["data_error"]


@task(retries=2)
def fetch(job, target):
    xptycho_client.Client().download(job, target)
    return target


@flow
def reconstruct(path, target, iterations=20):
    job = submit(path, iterations)
    error = wait(job, 3600.0)
    print("job", job)
    print("data error", error)
    return fetch(job, target)


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    try:
        print("result", reconstruct(sys.argv[1], sys.argv[2], *map(int, sys.argv[3:])))
    except (ReconstructionFailed, xptycho_client.Error) as failure:
        sys.exit(f"prefect_flow: {failure}")
