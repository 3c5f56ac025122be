def custom_kernel(data):
    raise RuntimeError("the kernel broke on purpose")
