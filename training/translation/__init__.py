"""Sentences with their translations, out of Debian packages. Python standard library only."""
