"""Logins of users, as operators give and take them; called by the command line."""

from __future__ import annotations

from collections.abc import Sequence

from runner.store.base import Base, expect, text
from runner.store.clean import clean_text
from runner.store.queries import QUERIES
from runner.store.records import UserLine


class Users(Base):
    """The part of a store that knows who may log in."""

    def approve_login(self, code: str, user_id: str, *, user_name: str | None, existing: bool) -> None:
        """Make the login that waits under a code that of a user; with `existing` of one who is there already.

        Raises:
            SubmissionError: no such login, the user exists, or a malformed id or name.
        """
        parameters = {
            "code": clean_text(code),
            "user_id": clean_text(user_id),
            "user_name": text(user_name),
            "existing": existing,
        }
        self._link.one(QUERIES["approve_login"], parameters)

    def set_token(self, user_id: str, *, user_name: str | None, digest: str) -> None:
        """Give a user a new token, of which the digest is stored; makes the user if there is none.

        Raises:
            SubmissionError: a malformed id, name or digest.
        """
        parameters = {"user_id": clean_text(user_id), "user_name": text(user_name), "digest": digest}
        self._link.one(QUERIES["set_token"], parameters)

    def revoke_login(self, user_id: str) -> bool:
        """End all logins of a user; False: there is no such user."""
        return bool(expect(self._link.one(QUERIES["revoke_login"], {"user_id": clean_text(user_id)}))["revoked"])

    def users(self) -> Sequence[UserLine]:
        """All users, those who wait for approval first."""
        return [UserLine(**record) for record in self._link.all(QUERIES["users"])]
