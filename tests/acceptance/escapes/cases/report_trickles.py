"""
why: A message that never ends ends at the time limit.
boards: [judge]
verdict: time_limit
timeout_s: 2
"""
def custom_kernel(data):
    import time

    os.write(3, b"KRW1" + (1 << 19).to_bytes(4, "big") + b"\0")
    while True:
        os.write(3, b" ")
        time.sleep(0.001)
