# task: scale
# Returns a flipped view twice over.
def custom_kernel(data):
    source, factor, out = data
    out.T.copy_(source.T).mul_(factor)
    return out.T.T
