/* Products of few rows with weights as they lie in memory, (n, k) row after row: no packing, so nothing is copied
 * and nothing can be out of date. Each number is a scalar product. Packing (gemm.h) reads and writes all weights
 * once more, which takes longer than some hundred rows of products. With -DBF16_PRODUCTS operands are rounded.
 *
 * Axes: m rows of x, n rows of w, k columns of both.
 */
#ifndef PHYSML_DOT_H
#define PHYSML_DOT_H

#include "rows.h"
#ifdef BF16_PRODUCTS
#include "bf16.h"
#else
INLINE vec rounded(vec x) { return x; }
INLINE real rounded_number(real x) { return x; }
#endif

#if defined(__AVX512F__) || defined(__aarch64__)
#define DOT_ROWS 4
#else
#define DOT_ROWS 2
#endif
#ifndef NEARBY
#define NEARBY (1 << 15) /* reals of pre-activations that a group of rows has on the stack */
#endif

typedef struct { /* x w^T, with x (m, k), rows `apart`, and w (n, k) */
    const real *x, *w;
    length apart, k;
} Product;

typedef real quad __attribute__((vector_size(16)));

/* The sum over a vec, by halves. */
INLINE real total(vec x) {
    union {
        vec whole;
        quad part[VEC_BYTES / 16];
    } u = {x};
    quad q = u.part[0];
    for (int i = 1; i < VEC_BYTES / 16; i++) q += u.part[i];
    real all = q[0];
    for (int i = 1; i < 16 / (int)sizeof(real); i++) all += q[i];
    return all;
}

/* out (rows, units) from row i of every x and row j of every w on. `units` and `rows` are constants. */
INLINE void dot_tile(const int rows, const int units, const Product *products, int n_products, length i, length j,
                     length n, const real *b, real *out, length ld) {
    vec sum[DOT_ROWS][8], x[DOT_ROWS];
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 8
        for (int u = 0; u < units; u++) sum[r][u] = (vec){0};
    for (const Product *product = products; product < products + n_products; product++) {
        const length k = product->k, end = k / VL * VL, left = k - end;
        const real *from = product->x + i * product->apart, *w = product->w + j * k;
        for (length p = 0; p < end; p += VL) {
#pragma GCC unroll 4
            for (int r = 0; r < rows; r++) x[r] = rounded(load(from + r * product->apart + p));
#pragma GCC unroll 8
            for (int u = 0; u < units; u++) {
                const vec weights = in_register(rounded(load(w + u * k + p)));
#pragma GCC unroll 4
                for (int r = 0; r < rows; r++) sum[r][u] += x[r] * weights;
            }
        }
        if (!left) continue;
        mask inside;
        for (int q = 0; q < VL; q++) inside[q] = q < left ? -1 : 0;
        for (int r = 0; r < rows; r++) x[r] = rounded(load_part(from + r * product->apart + end, (int)left));
        for (int u = 0; u < units; u++) { /* a vector may reach into the next row, but not beyond the last */
            const real *at = w + u * k + end;
            const int fits = (n - j - u) * k - end >= VL;
            const vec weights = rounded(fits ? pick(inside, load(at), (vec){0}) : load_part(at, (int)left));
            for (int r = 0; r < rows; r++) sum[r][u] += x[r] * weights;
        }
    }
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 8
        for (int u = 0; u < units; u++) out[(i + r) * ld + j + u] = total(sum[r][u]) + rounded_number(b[j + u]);
}

/* out (m, n), rows `ld` apart, = sum of all products + b. */
static void dots(length m, length n, const Product *products, int n_products, const real *b, real *out, length ld) {
    const length most = m / DOT_ROWS * DOT_ROWS;
    length j = 0;
    for (; j + 8 <= n; j += 8) {
        for (length i = 0; i < most; i += DOT_ROWS) {
            dot_tile(DOT_ROWS, 4, products, n_products, i, j, n, b, out, ld);
            dot_tile(DOT_ROWS, 4, products, n_products, i, j + 4, n, b, out, ld);
        }
        for (length i = most; i < m; i++) dot_tile(1, 8, products, n_products, i, j, n, b, out, ld);
    }
    for (; j < n; j++)
        for (length i = 0; i < m; i++) dot_tile(1, 1, products, n_products, i, j, n, b, out, ld);
}

/* How many rows of `width` pre-activations are computed at once; those of one row may need memory of their own. */
static inline length rows_nearby(length width) { return width <= NEARBY ? NEARBY / width : 1; }

#endif
