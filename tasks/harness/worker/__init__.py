"""The untrusted process: it hosts the submission, which may rewrite everything here. Nothing here decides anything.

Must not import the judge's code: a submission could use whatever stands there.
"""
