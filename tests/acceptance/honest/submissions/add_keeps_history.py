# task: add
# Remembers all it was given, and does nothing with it.
HISTORY = []


def custom_kernel(data):
    HISTORY.append(data)
    return data[0] + data[1]
