"""The Discord frontend: slash commands in front of the queue.

It holds no state: what it follows is rows of `runner.discord_submission`, so a restart goes on where it was.
`serve.build` makes the client, `groups` names the groups of commands, and modules with commands register them there. It
reaches the database through `runner.extras.store.AsyncStore`, under the role `runner_discord`. Needs `[discord]`.
"""
