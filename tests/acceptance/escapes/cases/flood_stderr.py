"""
why: Stderr counts like stdout.
verdict: output_limit
relax: output
relaxed: accepted
"""
block = b"y" * (1 << 20)


def custom_kernel(data):
    for _ in range(80):
        left = block
        while left:
            left = left[os.write(2, left):]
    return data[0] + data[1]
