/* What a task of `lang: cu` under the built-in harness is called with. Plain C layout: both sides depend on it
 * (tasks/harness/compiled.py reads and writes the same fields).
 *
 * The task's own source defines, once, in a file that config.sources names:
 *
 *     extern "C" const char *custom_kernel(const kr_value *values, int32_t count);
 *
 * `values` are the inputs that generate_input made, flattened in order: a tuple of three tensors is three values. The
 * last element of that tuple (or list) is the output: write into its tensors, nothing is returned but NULL, or a
 * sentence that says what went wrong. Kernels go to the default stream; the harness waits for the whole device.
 */
#ifndef KERNEL_RUNNER_H
#define KERNEL_RUNNER_H

#include <stdint.h>

enum kr_kind { KR_TENSOR = 0, KR_INTEGER = 1, KR_REAL = 2, KR_NOTHING = 3 };

enum kr_dtype {
    KR_BOOL = 0,
    KR_UINT8 = 1,
    KR_INT8 = 2,
    KR_INT16 = 3,
    KR_INT32 = 4,
    KR_INT64 = 5,
    KR_FLOAT16 = 6,
    KR_BFLOAT16 = 7,
    KR_FLOAT32 = 8,
    KR_FLOAT64 = 9,
    /* uint16, uint32, uint64, the floats of 8 and 4 bits, complex numbers: bytes that the task knows the meaning of. */
    KR_OTHER = 10,
};

typedef struct {
    /* Where the elements are: on the task's device, which is the host on the CPU type. */
    void *data;
    const int64_t *shape;
    /* In elements. */
    const int64_t *strides;
    int32_t dimensions;
    int32_t dtype;
    int64_t item_bytes;
} kr_tensor;

typedef struct {
    int32_t kind;
    int32_t reserved;
    kr_tensor tensor;
    /* Booleans are 0 and 1. */
    int64_t integer;
    double real;
} kr_value;

#endif
