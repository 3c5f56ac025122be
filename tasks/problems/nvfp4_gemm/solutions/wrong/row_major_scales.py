# Reads the permuted scales as if they were in the order of rows and blocks.
from formats import dequantize
from task import input_t, output_t


def custom_kernel(data: input_t) -> output_t:
    a, b, sfa, sfb, sfa_permuted, sfb_permuted, c = data
    for batch in range(c.shape[2]):
        # (32, 4, tiles, 4, tiles) -> (tiles, tiles, 32, 4, 4), as it lies in memory
        scales_a, scales_b = (
            each[..., batch].permute(2, 4, 0, 1, 3).reshape(plain.shape[:2])
            for each, plain in ((sfa_permuted, sfa), (sfb_permuted, sfb))
        )
        left = dequantize(a[:, :, batch], scales_a)
        right = dequantize(b[:, :, batch], scales_b)
        c[:, :, batch] = (left @ right.T).half()
    return c
