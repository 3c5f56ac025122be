# task: add
# custom_kernel is an object with state.
class Kernel:
    def __init__(self):
        self.calls = 0

    def __call__(self, data):
        self.calls += 1
        return data[0] + data[1]


custom_kernel = Kernel()
