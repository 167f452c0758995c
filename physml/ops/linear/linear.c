/* out = x W^T [+ b], to x: g W, to W: g^T x.  Axes: N rows, D channels in, H channels out; g the gradient of out.
 *
 * Rows are taken in blocks that stay in the cache of a core, as W does, packed once. A thread owns rows of what is
 * written, and sums in one order: the number of threads changes no bit.
 */

#include "gemm.h"
#include "rows.h"
#include "threads.h"

#define BLOCK 64  /* rows of x or g */
#define DEEP 256  /* rows that a sum takes before it goes on with the next tile */

typedef struct {
    length n_rows, n_in, n_out; /* of the product: (n_rows, n_in) by (n_in, n_out), or its transpose */
    const real *left, *packed, *right, *bias;
    length bias_row; /* between those of two rows; 0: one for all */
    real *to;
} Work;

/* A share of the rows of `to` = left packed [+ bias]. */
static void product(void *shared, int share, int n_shares) {
    const Work *w = shared;
    const length end = first_row((int)w->n_rows, share + 1, n_shares);
    for (length i = first_row((int)w->n_rows, share, n_shares); i < end; i += BLOCK) {
        const length n = least(BLOCK, end - i);
        real *to = w->to + i * w->n_out;
        if (w->bias)
            for (length k = 0; k < n; k++) copy(to + k * w->n_out, w->bias + (i + k) * w->bias_row, w->n_out);
        gemm((int)n, (int)w->n_out, (int)w->n_in, w->left + i * w->n_in, w->n_in, w->packed, to, w->n_out,
             w->bias != NULL);
    }
}

static int multiply(Work *w, int n_threads, const real *weight, length stride_in, length stride_out) {
    real *packed = reals(packed_size((int)w->n_in, (int)w->n_out));
    if (!packed) return 1;
    pack(packed, weight, (int)w->n_in, (int)w->n_out, stride_in, stride_out);
    w->packed = packed;
    in_threads(product, w, n_threads);
    free(packed);
    return 0;
}

/* A share of the rows of `to` = left^T right, both with n_rows. */
static void product_tn(void *shared, int share, int n_shares) {
    const Work *w = shared;
    const length first = first_row((int)w->n_in, share, n_shares);
    const length n = first_row((int)w->n_in, share + 1, n_shares) - first;
    real *to = w->to + first * w->n_out;
    clear(to, n * w->n_out);
    for (length i = 0; i < w->n_rows; i += DEEP)
        gemm_tn((int)n, (int)w->n_out, (int)least(DEEP, w->n_rows - i), w->left + i * w->n_in + first, w->n_in,
                w->right + i * w->n_out, w->n_out, to, w->n_out);
}

/* sizes: N, D, H; D and H are whole vectors. bias: NULL, (H) with bias_row 0, or (N, H). */
int linear_forward(int n_threads, const long long sizes[3], const real *x, const real *weight, const real *bias,
                   const long long bias_row[1], real *out) {
    Work w = {.n_rows = sizes[0], .n_in = sizes[1], .n_out = sizes[2], .left = x, .bias = bias,
              .bias_row = bias_row[0], .to = out};
    return multiply(&w, n_threads, weight, 1, sizes[1]);
}

int linear_to_x(int n_threads, const long long sizes[3], const real *grad, const real *weight, real *to_x) {
    Work w = {.n_rows = sizes[0], .n_in = sizes[2], .n_out = sizes[1], .left = grad, .to = to_x};
    return multiply(&w, n_threads, weight, sizes[1], 1);
}

void linear_to_weight(int n_threads, const long long sizes[3], const real *grad, const real *x, real *to_weight) {
    Work w = {.n_rows = sizes[0], .n_in = sizes[2], .n_out = sizes[1], .left = grad, .right = x, .to = to_weight};
    in_threads(product_tn, &w, n_threads);
}
