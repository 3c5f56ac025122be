def customkernel(data):
    return data[0]
