# task: add
# Talks in every call.
import sys


def custom_kernel(data):
    print("adding", len(data[0]))
    print("and to stderr", file=sys.stderr)
    return data[0] + data[1]
