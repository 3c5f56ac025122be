"""The kinds of jobs behind one interface, `Kind`: each plans, decides, and makes rows. Pure.

kind         the interface, and the records that an attempt hands to it
submission   what the jobs of submissions have in common
kernel       a submission under the built-in harness: judge and worker
program      a submission under a third party's eval program
guests       the kinds that guests bring: groups, and validations
"""
