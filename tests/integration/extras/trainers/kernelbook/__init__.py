"""The KernelBook pipeline against an endpoint over HTTP."""
