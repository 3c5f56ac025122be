"""The parts of the KernelBook pipeline that ask nobody."""
