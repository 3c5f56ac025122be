# task: add
# Takes ten times as long every now and then.
import itertools
import time

CALLS = itertools.count()


def custom_kernel(data):
    until = time.perf_counter_ns() + (2_000_000 if next(CALLS) % 7 == 3 else 200_000)
    while time.perf_counter_ns() < until:
        pass
    return data[0] + data[1]
