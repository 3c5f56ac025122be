"""The examples of docs/examples, as frontends of a daemon."""
