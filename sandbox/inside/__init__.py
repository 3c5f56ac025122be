"""The part of the sandbox that runs inside the container, as its process 1.

`sandbox.host.stage` copies these files and `sandbox/protocol.py` into a directory that every container mounts. They
import each other, `sandbox.protocol` and the standard library, nothing else: the image's Python has no other package.
"""
