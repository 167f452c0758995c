/* Matrix products of a recurrence's size, row-major, in `real`.
 *
 * Both products go through one kernel: a tile of C, at most TILE_ROWS rows by TILE_VECS vectors, stays in
 * registers while the sum runs over k. Each turn loads TILE_VECS vectors of B and, row by row, one number of A
 * that multiplies them all. The tile is what the register file holds: 8 x 3 sums, 3 vectors of B and a number
 * of A where there are 32 registers, 4 x 3 where there are 16.
 *
 * gemm reads B packed: panels of up to TILE_VECS vectors of columns, in each panel row after row, so that a
 * panel is read in the order of memory. gemm_tn reads B as it is; it needs no packing while B is a block of
 * time steps that lies in cache.
 *
 * Rows of C, and of the B of gemm_tn, need room for n rounded up to VL: the numbers in that room are read and
 * written, and mean nothing. Pointers may be unaligned; aligned rows, and row lengths that are no multiple of
 * 4 KiB, are faster.
 *
 * With -DBF16_PRODUCTS both operands are rounded to bfloat16 (bf16.h). The tile then multiplies pairs along k: those
 * of W are packed once, those of A, and of both operands of gemm_tn, are made in each call, a piece at a time.
 */

#ifndef PHYSML_GEMM_H
#define PHYSML_GEMM_H

#include "vec.h"

#include <stddef.h>

#ifdef BF16_PRODUCTS
#include "bf16.h"
#else
/* sum + a w, the number at `a` with each number of w */
INLINE vec multiplied(vec sum, const real *a, vec w) { return sum + *a * w; }
INLINE real rounded_number(real x) { return x; }
#endif

#if defined(__AVX512F__) || defined(__aarch64__)
#define TILE_ROWS 8
#else
#define TILE_ROWS 4
#endif
#define TILE_VECS 3

/* C (rows, vecs * VL) = [C +] A B. Strides: a number of A at [row * a_row + p * a_k], a row of B at [p * b_k].
 * The sum starts at 0 and C is added last: where C is much larger than the products, as the gradient of a state
 * after thousands of small steps is, each of them added to C by itself would be rounded, the smallest away.
 * rows and vecs are constants wherever this is called, so that `sum` becomes registers.
 */
static inline __attribute__((always_inline)) void tile(const int rows, const int vecs, int k, const real *a,
                                                       ptrdiff_t a_row, ptrdiff_t a_k, const real *b,
                                                       ptrdiff_t b_k, real *c, ptrdiff_t ldc, int accumulate) {
    vec sum[TILE_ROWS][TILE_VECS], w[TILE_VECS];
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 3
        for (int j = 0; j < vecs; j++)
            sum[i][j] = (vec){0};
    for (int p = 0; p < k; p++, a += a_k, b += b_k) {
#pragma GCC unroll 3
        for (int j = 0; j < vecs; j++)
            w[j] = in_register(load(b + j * VL));
#pragma GCC unroll 8
        for (int i = 0; i < rows; i++)
#pragma GCC unroll 3
            for (int j = 0; j < vecs; j++)
                sum[i][j] = multiplied(sum[i][j], a + i * a_row, w[j]);
    }
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 3
        for (int j = 0; j < vecs; j++)
            store(c + i * ldc + j * VL, accumulate ? load(c + i * ldc + j * VL) + sum[i][j] : sum[i][j]);
}

/* The tile with as many rows and vectors as are left. */
static inline void edge_tile(int rows, int vecs, int k, const real *a, ptrdiff_t a_row, ptrdiff_t a_k,
                             const real *b, ptrdiff_t b_k, real *c, ptrdiff_t ldc, int accumulate) {
#define TILE(rows, vecs) tile(rows, vecs, k, a, a_row, a_k, b, b_k, c, ldc, accumulate)
#define ROWS(rows)                                                                                            \
    case rows:                                                                                                \
        if (vecs == 1)                                                                                        \
            TILE(rows, 1);                                                                                    \
        else if (vecs == 2)                                                                                   \
            TILE(rows, 2);                                                                                    \
        else                                                                                                  \
            TILE(rows, 3);                                                                                    \
        break;
    switch (rows) {
        ROWS(1) ROWS(2) ROWS(3) ROWS(4)
#if TILE_ROWS == 8
        ROWS(5) ROWS(6) ROWS(7) ROWS(8)
#endif
    }
#undef ROWS
#undef TILE
}

/* How many vectors wide the next panel is, with `columns` left: 4 are 2 + 2, as 3 + 1 would be slower. */
static inline int panel_width(int columns) {
    int left = (columns + VL - 1) / VL;
    return left == 4 ? 2 : left < TILE_VECS ? left : TILE_VECS;
}

#ifndef BF16_PRODUCTS

/* How many reals a packed (k, n) takes. */
static inline size_t packed_size(int k, int n) {
    return (size_t)k * whole(n);
}

/* W (k, n) for gemm; its numbers are at w[p * stride_k + j * stride_n]. Columns beyond n are 0. A column is read some
 * rows at a time, whole lines of the cache: columns 4 KiB apart would push each other out of it.
 */
static inline void pack(real *packed, const real *w, int k, int n, ptrdiff_t stride_k, ptrdiff_t stride_n) {
    for (int column = 0, width; column < n; column += width) {
        width = panel_width(n - column) * VL;
        for (int rows, begin = 0; begin < k; begin += rows, packed += rows * width) {
            rows = k - begin < 16 ? k - begin : 16;
            for (int j = 0; j < width; j++)
                for (int p = 0; p < rows; p++)
                    packed[p * width + j] = column + j < n ? w[(begin + p) * stride_k + (column + j) * stride_n] : 0;
        }
    }
}

/* C (m, n) = [C +] A W, with A (m, k) and W (k, n) packed. */
static inline void gemm(int m, int n, int k, const real *a, ptrdiff_t lda, const real *packed, real *c,
                        ptrdiff_t ldc, int accumulate) {
    for (int column = 0, vecs; column < n; column += vecs * VL) {
        vecs = panel_width(n - column);
        for (int row = 0; row < m; row += TILE_ROWS)
            edge_tile(m - row < TILE_ROWS ? m - row : TILE_ROWS, vecs, k, a + row * lda, lda, 1, packed,
                      vecs * VL, c + row * ldc + column, ldc, accumulate);
        packed += (size_t)k * (vecs * VL);
    }
}

#define TN_ROWS 512  /* of C at once: their columns of A stay near while all columns of B pass */
#define TN_DEPTH 128 /* rows of A and B at once: a panel of B stays in the nearest cache */

/* C (m, n) += A^T B, with A (k, m) and B (k, n): the gradient of a weight from k rows of a batch. C may be larger
 * than the caches, so each tile of it is fetched while its sum runs.
 */
static inline void gemm_tn(int m, int n, int k, const real *a, ptrdiff_t lda, const real *b, ptrdiff_t ldb,
                           real *c, ptrdiff_t ldc) {
    const int pieces = (k + TN_DEPTH - 1) / TN_DEPTH, deep = (k + pieces - 1) / pieces;
    for (int begin = 0; begin < k; begin += deep, a += deep * lda, b += deep * ldb)
        for (int first = 0; first < m; first += TN_ROWS) {
            const int end = m - first < TN_ROWS ? m : first + TN_ROWS;
            for (int column = 0, vecs; column < n; column += vecs * VL) {
                vecs = panel_width(n - column);
                for (int row = first; row < end; row += TILE_ROWS) {
                    const int rows = end - row < TILE_ROWS ? end - row : TILE_ROWS;
                    real *at = c + row * ldc + column;
                    for (int i = 0; i < rows; i++)
                        for (int j = 0; j < vecs * VL; j += 64 / (int)sizeof(real))
                            __builtin_prefetch(at + i * ldc + j, 1);
                    edge_tile(rows, vecs, k - begin < deep ? k - begin : deep, a + row, 1, lda, b + column, ldb, at,
                              ldc, 1);
                }
            }
        }
}

#else

#define PIECE (1 << 16) /* pairs of A that are made at once */
#define DEPTH 4096      /* of them in a row at most */

/* Room for a row of n pairs: an odd number of vectors, since rows a multiple of 4 KiB apart share few lines of the
 * cache. */
static inline int pairs_apart(int n) { return (int)(whole((size_t)n) / VL | 1) * VL; }

static inline size_t packed_size(int k, int n) { return (size_t)(k + 1) / 2 * whole((size_t)n); }

static inline void pack(real *packed, const real *w, int k, int n, ptrdiff_t stride_k, ptrdiff_t stride_n) {
    word *to = (word *)packed;
    for (int column = 0, width; column < n; column += width) {
        width = panel_width(n - column) * VL;
        for (int p = 0; p < k; p += 2)
            for (int j = column; j < column + width; j++) {
                const real *at = w + p * stride_k + j * stride_n;
                *to++ = j < n ? pair_of(*at, p + 1 < k ? at[stride_k] : 0) : 0;
            }
    }
}

static void gemm(int m, int n, int k, const real *a, ptrdiff_t lda, const real *packed, real *c, ptrdiff_t ldc,
                 int accumulate) {
    real pairs[PIECE] __attribute__((aligned(64)));
    const int deep = (k + 1) / 2;
    for (int begin = 0; begin < deep; begin += DEPTH) {
        const int n_pairs = deep - begin < DEPTH ? deep - begin : DEPTH, apart = pairs_apart(n_pairs);
        const int most = PIECE / apart / TILE_ROWS * TILE_ROWS, last = k - 2 * begin;
        for (int first = 0; first < m; first += most) {
            const int end = m - first < most ? m : first + most;
            for (int row = first; row < end; row++)
                pair_up(pairs + (row - first) * apart, a + row * lda + 2 * begin, last < 2 * DEPTH ? last : 2 * DEPTH);
            const real *panel = packed;
            for (int column = 0, vecs; column < n; column += vecs * VL) {
                vecs = panel_width(n - column);
                for (int row = first; row < end; row += TILE_ROWS)
                    edge_tile(end - row < TILE_ROWS ? end - row : TILE_ROWS, vecs, n_pairs,
                              pairs + (row - first) * apart, apart, 1, panel + (size_t)begin * vecs * VL, vecs * VL,
                              c + row * ldc + column, ldc, accumulate || begin);
                panel += (size_t)deep * (vecs * VL);
            }
        }
    }
}

#define TN_ROWS 256  /* of C at once */
#define TN_PAIRS 128 /* rows of A and B at once, in pairs */

/* Pairs of rows p and p + 1 of x (k, n), whole vectors of them. */
static inline void pair_rows(real *to, int apart, const real *x, ptrdiff_t ld, int k, int n) {
    for (int p = 0; p < k; p += 2, to += apart)
        for (int j = 0; j < n; j += VL) {
            const real *first = x + p * ld + j, *second = first + ld;
            const int left = n - j;
            if (left >= VL) store(to + j, row_pairs(load(first), p + 1 < k ? load(second) : (vec){0}));
            else store(to + j, row_pairs(load_part(first, left), p + 1 < k ? load_part(second, left) : (vec){0}));
        }
}

static void gemm_tn(int m, int n, int k, const real *a, ptrdiff_t lda, const real *b, ptrdiff_t ldb, real *c,
                    ptrdiff_t ldc) {
    real of_a[TN_PAIRS * (TN_ROWS + VL)] __attribute__((aligned(64)));
    real of_b[TN_PAIRS * TILE_VECS * VL] __attribute__((aligned(64)));
    for (int begin = 0; begin < k; begin += 2 * TN_PAIRS) {
        const int deep = k - begin < 2 * TN_PAIRS ? k - begin : 2 * TN_PAIRS;
        for (int first = 0; first < m; first += TN_ROWS) {
            const int end = m - first < TN_ROWS ? m : first + TN_ROWS;
            const int apart = pairs_apart(end - first);
            pair_rows(of_a, apart, a + begin * lda + first, lda, deep, end - first);
            for (int column = 0, vecs; column < n; column += vecs * VL) {
                vecs = panel_width(n - column);
                pair_rows(of_b, vecs * VL, b + begin * ldb + column, ldb, deep, vecs * VL);
                for (int row = first; row < end; row += TILE_ROWS) {
                    const int rows = end - row < TILE_ROWS ? end - row : TILE_ROWS;
                    real *at = c + row * ldc + column;
                    for (int i = 0; i < rows; i++)
                        for (int j = 0; j < vecs * VL; j += 64 / (int)sizeof(real))
                            __builtin_prefetch(at + i * ldc + j, 1);
                    edge_tile(rows, vecs, (deep + 1) / 2, of_a + row - first, 1, apart, of_b, vecs * VL, at, ldc, 1);
                }
            }
        }
    }
}

#endif

#endif
