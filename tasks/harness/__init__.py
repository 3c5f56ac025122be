"""The built-in evaluation harness: a trusted judge process and an untrusted worker process.

`judge` and `worker` are the code of the two, `shared` is what both import, `emulate` stands in for a CUDA device. All
of it runs inside the container: standard library, torch and numpy only. `local` starts both processes without a
container.
"""
