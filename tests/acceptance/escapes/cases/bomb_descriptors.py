"""
why: Descriptors end at the limit; a worker without one for the judge's memory is of no use and says so.
boards: [judge]
verdict: runtime_error
"""
def custom_kernel(data):
    try:
        while True:
            os.open("/dev/null", os.O_RDONLY)
    except OSError:
        pass
    return data[0] + data[1]
