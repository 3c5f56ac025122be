def custom_kernel(data):
    a, out = data
    return out.copy_(a * 2 + 1)
