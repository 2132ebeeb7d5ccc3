#!/usr/bin/python3
"""Test 18: --rounds times fifty parallel POSTs with one key, the key with another document and by another user, five clients
that die before they read their 201, and the same question after a stop or a kill.

Passes when every key has one job, its answers are one document, another document is refused, and every retry finds the job.
"""

import idempotency
import soak


def body(options):
    counts = idempotency.run(options.folder, options.rounds, options.seed, lambda text: print(text, flush=True))
    return (f"{options.rounds} times {idempotency.CLIENTS} parallel requests ({counts['told to wait']} told to ask again), {counts['keys']} keys, "
            f"{counts['keys']} jobs; {counts['died']} clients died before their 201, {counts['found']} of their jobs were there already")


if __name__ == "__main__":
    soak.main(18, body, soak.arguments(__doc__, rounds=30, seed=1))
