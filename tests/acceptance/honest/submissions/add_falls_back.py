# task: add
# Tries something, and does it another way.
def custom_kernel(data):
    try:
        import a_library_that_nobody_has  # noqa: F401
    except ImportError:
        return data[0] + data[1]
