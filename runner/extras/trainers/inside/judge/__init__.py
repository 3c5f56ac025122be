"""Judges PyTorch modules: a reference of KernelBench's or KernelBook's form, and a group of candidates for it."""
