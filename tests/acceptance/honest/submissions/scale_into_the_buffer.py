# task: scale
# Writes where it was told to, and returns that.
def custom_kernel(data):
    source, factor, out = data
    out.copy_(source).mul_(factor)
    return out
