"""
why: An exception of 64 MB is cut before it gets anywhere.
boards: [judge]
verdict: runtime_error
error: 'xxxx'
"""
def custom_kernel(data):
    raise ValueError("x" * (64 << 20))
