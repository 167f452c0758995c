/* One matrix product by the kernels' own gemm.h, to be timed beside torch's: C (m, n) = A (m, k) B (k, n),
 * all dense, B packed beforehand, as the kernels pack their weights once per pass. n: whole vectors. */

#include "gemm.h"

size_t size_of_packed(int k, int n) { return packed_size(k, n); }

void pack_dense(real *packed, const real *b, int k, int n) { pack(packed, b, k, n, n, 1); }

void product(int m, int n, int k, const real *a, const real *packed, real *c) {
    gemm(m, n, k, a, k, packed, c, n, 0);
}
