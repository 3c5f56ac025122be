"""How submissions cheat: one folder per way under cases/, each with its verdict and with what stops it.

`catalogue` reads the folders, `play` runs one against the judge, against a judge that lacks a defence (`relax`), or
against an evaluator as most projects have them (`naive`), `__main__` prints the table of docs/attacks.md.
"""
