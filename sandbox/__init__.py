"""The box a submission runs in: what it is (spec), how to talk to it (protocol), how to start it (engine).

Knows nothing of the runner, the database or the tasks.
"""
