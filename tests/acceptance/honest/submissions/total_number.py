# task: total
# A number of Python's.
def custom_kernel(data):
    return sum(data.tolist())
