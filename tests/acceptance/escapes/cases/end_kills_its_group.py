"""
why: kill(0) and kill(-1) reach the worker's own processes, and so end it; init and judge are not among them.
boards: [judge]
verdict: runtime_error
error: killed by signal 9
"""
def custom_kernel(data):
    os.kill(-1, 9)
    os.kill(0, 9)
