#!/usr/bin/python3
"""Test 11: cancel in every state of a job, at random moments, and a hundred at once, --rounds times.

Passes when each job has one terminal state and one `end`, a further cancel changes nothing, and 99 % of the running jobs
leave the worker idle within two of their iterations and 1 s.
"""

import cancel_storm
import soak


def body(options):
    storm = cancel_storm.run(options.folder, options.rounds, options.seed, tell=lambda text: print(text, flush=True))
    figures = []
    for name, times in storm.times.items():
        took = [t for t, _ in times]
        figures.append(f"{name} (at most {max(s for _, s in times):.3f} s): {len(took)} cancels, to idle in {soak.quantile(took, 0.5):.3f} s "
                       f"(median), {soak.quantile(took, 0.99):.3f} s (99 %), {max(took):.3f} s (longest)")
        print(figures[-1])
    measured = sum(len(times) for times in storm.times.values())
    assert len(storm.late) <= 0.01 * measured, f"{len(storm.late)} of {measured} took longer than two iterations and 1 s: {storm.late[:5]}"
    assert "starting" in storm.states, storm.states
    return (f"cancelled while {', '.join(f'{state} {count}' for state, count in sorted(storm.states.items()))}; {options.rounds} times "
            f"{cancel_storm.CLIENTS} at once; {'; '.join(figures)}")


if __name__ == "__main__":
    soak.main(11, body, soak.arguments(__doc__, rounds=40, seed=1))
