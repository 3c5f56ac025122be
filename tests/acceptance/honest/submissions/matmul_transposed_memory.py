# task: matmul
# The output's strides are those of its transpose.
def custom_kernel(data):
    a, b = data
    return (b.T @ a.T).T
