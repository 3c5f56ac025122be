"""The untrusted process: it hosts the submission, which may rewrite all of this. Nothing here decides anything.

Must not import the judge's code: a submission could use everything in it.
"""
