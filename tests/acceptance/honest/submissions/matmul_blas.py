# task: matmul
# The library's.
def custom_kernel(data):
    return data[0] @ data[1]
