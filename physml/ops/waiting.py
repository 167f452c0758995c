"""How long the threads of torch's OpenMP (libgomp) wait actively for their next piece of work."""

import os

SPINS = (
    10_000  # some 10 microseconds; libgomp's default is milliseconds, and a processor that does nothing else
)


def variables() -> dict[str, str]:
    """Environment variables for a process with several threads, if not set already; read at start.

    Between the calls of a recurrence in C, which have threads of their own, waiting costs a third of the
    processor time and blocks the core for others. Threads that sleep at once take longer to wake, which
    torch's small operations feel.
    """
    chosen = {"GOMP_SPINCOUNT", "OMP_WAIT_POLICY"} & os.environ.keys()
    return {} if chosen else {"GOMP_SPINCOUNT": str(SPINS)}
