/* The products of gemm.h under names that ctypes can call. */

#include "gemm.h"

int vector_length(void) { return VL; }

/* C (m, n) = [C +] A W, W (k, n) by its strides; 1 if there is no memory for the packed W. */
int check_gemm(int m, int n, int k, const real *a, int lda, const real *w, int stride_k, int stride_n, real *c,
               int ldc, int accumulate) {
    real *packed = reals(packed_size(k, n));
    if (!packed) return 1;
    pack(packed, w, k, n, stride_k, stride_n);
    gemm(m, n, k, a, lda, packed, c, ldc, accumulate);
    free(packed);
    return 0;
}

/* C (m, n) += A^T B, A (k, m), B (k, n). */
void check_gemm_tn(int m, int n, int k, const real *a, int lda, const real *b, int ldb, real *c, int ldc) {
    gemm_tn(m, n, k, a, lda, b, ldb, c, ldc);
}
