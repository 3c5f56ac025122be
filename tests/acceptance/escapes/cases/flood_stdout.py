"""
why: Stdout at full speed is read to a limit, then nobody reads on and the worker is killed.
boards: [judge, program]
verdict: output_limit
error: '(?i)wrote more than|bytes of output'
"""
def custom_kernel(data):
    block = b"x" * (1 << 20)
    while True:
        os.write(1, block)
