"""The built-in evaluation harness: a trusted judge process and an untrusted worker process.

Runs inside the container: standard library, torch and numpy only.
"""
