"""A server of the Model Context Protocol, by which a coding agent works on a leaderboard as its user.

It speaks to a gateway over HTTP with the user's token, never to the database. Other parts do not import it.
"""
