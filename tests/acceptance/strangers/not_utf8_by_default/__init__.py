"""Locales in which text is not UTF-8 by default."""
