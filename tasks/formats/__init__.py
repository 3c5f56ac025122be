"""Narrow number formats (NVFP4, FP8): encode, decode, block-scale. torch and numpy only."""
