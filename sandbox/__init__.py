"""Runs one submission in one container, and checks that the container is isolated as asked.

- `spec`, `protocol`, `errors`: records and rules that both sides share.
- `policy/`: the settings of a container, the reason for each, and how each is checked. Pure.
- `host/`: runs on the host; talks to the container engine.
- `inside/`: runs in the container as its process 1 (init).

Knows nothing of the runner, the database or the tasks.
"""
