"""What strangers' code does to get out, to stay, or to take more than its share; and what becomes of it.

    cases      a file per attempt: the submission, and in its docstring the verdict it must get and why
    case       reads them
    rig        plays one on a slot of the real evaluator, in a real container, and looks at what is left of it
    relax      containers with one defence switched off: an attempt that then succeeds was worth making
    table      which attempts get which verdict under which runtime, as docs/attacks.md shows it
    __main__   `python -m tests.acceptance.escapes` prints that table

A case that must be refused computes the right answer if and only if everything it tried was refused for want of
permission. An honest job on the same slot follows each container, but those without a defence.
"""
