"""Narrow number formats (NVFP4, MXFP4, FP8) and the order of their scales. Each file stands alone."""
