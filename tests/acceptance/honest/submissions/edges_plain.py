# task: edges
# Nothing, and a number.
def custom_kernel(data):
    nothing, number = data
    return nothing.T, number * 2
