"""Narrow number formats (NVFP4, MXFP4, FP8): encode, decode, block-scale, order of scales. Each file stands alone."""
