"""
why: Another program in the worker's place, exit code 0, is a worker that has ended.
boards: [judge]
verdict: runtime_error
error: ended with exit code 0
"""
def custom_kernel(data):
    os.execv("/bin/true", ["true"])
