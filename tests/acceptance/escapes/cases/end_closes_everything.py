"""
why: Without its line to the judge a worker has ended, whatever it does afterwards.
boards: [judge]
verdict: runtime_error
error: closed its channel
"""
def custom_kernel(data):
    import time

    os.closerange(0, 4096)
    time.sleep(1000)
