# task: total
# A tensor without dimensions.
def custom_kernel(data):
    return data.sum()
