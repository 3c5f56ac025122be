# task: add
# A thread of its own that sleeps.
import threading

threading.Thread(target=threading.Event().wait, daemon=True).start()


def custom_kernel(data):
    a, b = data
    return a + b
