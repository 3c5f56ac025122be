# task: add
# Lets go of its inputs before it returns.
def custom_kernel(data):
    a, b = data
    out = a + b
    del a, b, data
    return out
