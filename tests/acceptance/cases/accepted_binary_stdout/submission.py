import os

os.write(1, b"before\0after \xff\xfe end\n")
os.write(2, b"\0\xf0\x28\n")


def custom_kernel(data):
    a, b = data
    return a + b
