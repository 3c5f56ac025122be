# task: add
# The output still hangs on its graph.
def custom_kernel(data):
    a, b = data
    return a.requires_grad_() + b
