"""Webhooks: chats and programs get events of records, leaderboards and hosts (docs/webhooks.md).

What is told is derived in the database, from what is committed (`derive_webhooks.sql`); this part sends it.
"""
