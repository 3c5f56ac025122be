# task: add
# Overwrites its first input and returns it.
def custom_kernel(data):
    a, b = data
    return a.add_(b)
