"""The gateway: KernelBot's HTTP API and pages for people, in front of the queue.

Stateless: all it knows lies in the database, so several may stand behind one address. `server.serve` runs it,
`app.build` makes the application, and the other modules hold the routes. It reaches the database through
`runner.extras.store.AsyncStore` alone, under the role `runner_gateway`. Needs the extra `[gateway]`.
"""
