def custom_kernel(data):
    return data.double().mean().float()
