"""The part of the sandbox that runs on the host: starts containers, talks to them, and removes them."""
