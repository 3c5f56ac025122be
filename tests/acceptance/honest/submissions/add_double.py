# task: add
# Another dtype than the reference's, which the check allows.
def custom_kernel(data):
    a, b = data
    return a.double() + b.double()
