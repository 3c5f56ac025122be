# task: add
# Asks the system for its name when imported.
import subprocess

NAME = subprocess.run(["uname", "-m"], capture_output=True, text=True, check=True).stdout


def custom_kernel(data):
    return data[0] + data[1]
