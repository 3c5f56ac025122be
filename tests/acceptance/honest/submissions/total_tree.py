# task: total
# Halves the input again and again, in place.
def custom_kernel(data):
    while data.numel() > 1:
        if data.numel() % 2:
            data[0] += data[-1]
            data = data[:-1]
        half = data.numel() // 2
        data[:half] += data[half:]
        data = data[:half]
    return data[0]
