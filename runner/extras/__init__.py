"""Guests: each has commands, optional dependencies and tests of its own, and the core imports none of them.

A guest is a folder here. What it may bring, and who finds it:

    commands        a module, which `_MODULES` of runner/cli/__init__.py names
    dependencies    an extra in pyproject.toml; `optional` says what is missing
    schema/         tables, functions and views of its own, `roles.sql` its role; `runner.store.migrate` finds them
    queries.sql     its statements, sent by `store`; it calls the core's functions (docs/frontends.md)
    kinds/, inside/ kinds of jobs, and what those have in containers; `runner.evaluation.kinds.guests` finds them
    keys            fields of `SiteConfig` (config.py)
    a service       a unit in systemd/, which runner/cli/installation.py names

Its name goes to `GUESTS` of tests/unit/test_layers.py (which other guests it imports), to tests/tiers.toml (which
corpora a change plays), and, of a frontend, into the table of docs/frontends.md. `shown` has what frontends show alike.
"""
