# task: scale
# Does not use the buffer.
def custom_kernel(data):
    source, factor, _ = data
    return source.float() * factor
