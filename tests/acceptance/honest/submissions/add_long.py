# task: add
# Twenty milliseconds of work.
import time


def custom_kernel(data):
    until = time.perf_counter_ns() + 20_000_000
    while time.perf_counter_ns() < until:
        pass
    return data[0] + data[1]
