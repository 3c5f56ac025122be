"""The part of the sandbox that runs inside the container, as its process 1.

`sandbox.host.stage` copies these files, `sandbox/protocol.py` and `sandbox/mountinfo.py` into a directory that every
container mounts. They import each other, these two and the standard library: the image's Python has no other package.
"""
