"""Shared by judge and worker: values of modules. Must import neither of the two."""
