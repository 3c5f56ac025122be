def custom_kernel(data):
    return (data > 7).float()
