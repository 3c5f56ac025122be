"""
why: A child that keeps the line to the judge after the worker has died is killed with it; it answers nothing.
boards: [judge]
verdict: runtime_error
error: ended with exit code 7
"""
def custom_kernel(data):
    import time

    if os.fork() == 0:
        os.setsid()
        parent = os.getppid()
        while os.getppid() == parent:
            time.sleep(0.001)
        # The kill is under way; what comes through before it cannot be told from the worker's own words.
        time.sleep(5)
        os.write(3, b"KRW1" + (14).to_bytes(4, "big") + b"\0" + b'{"op": "done"}')
        time.sleep(1000)
    os._exit(7)
