"""The trusted process: makes inputs, measures the span of each call on its own clock, checks outputs and decides.

Must not import the worker's code. The one exception is the control process (`control`), which runs it in a fork.
"""
