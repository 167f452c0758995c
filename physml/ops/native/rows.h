/* Rows of numbers: how far they lie apart, how they are copied, fetched early, and end inside a vector. */
#ifndef PHYSML_ROWS_H
#define PHYSML_ROWS_H

#include "vec.h"

typedef ptrdiff_t length;

#ifndef LARGE
#define LARGE (1 << 24) /* bytes of a result, most of which is gone from the caches before it is read */
#endif
#define LINE (64 / (length)sizeof(real)) /* numbers that come to the cache together */

static inline length least(length x, length y) { return x < y ? x : y; }

/* Room for n numbers, an odd number of vectors: rows a power of 2 apart would share few sets of the cache. */
static inline length row_length(length n) { return ((length)whole(n) / VL | 1) * VL; }

static inline void copy(real *to, const real *from, length n) { memcpy(to, from, n * sizeof(real)); }

static inline void clear(real *p, length n) { memset(p, 0, n * sizeof(real)); }

/* Fetch n numbers that are read, or written, a step later: no processor foresees where that will be. */
static inline void expect(const real *p, length n) {
    for (length i = 0; i < n; i += LINE) __builtin_prefetch(p + i);
}

static inline void expect_new(const real *p, length n) {
    for (length i = 0; i < n; i += LINE) __builtin_prefetch(p + i, 1);
}

/* `past` the caches, which then keep what is read again: for arrays larger than these, at multiples of VEC_BYTES. Other
 * threads see it after `streamed`. Elsewhere than on AVX-512 as `store`. */
static inline void store_past(real *p, vec x, int past) {
#ifdef __AVX512F__
    if (past) {
        __asm__("vmovntps %1, %0" : "=m"(*(vec *)p) : "v"(x));
        return;
    }
#endif
    (void)past;
    store(p, x);
}

static inline void streamed(void) {
#ifdef __AVX512F__
    __asm__ volatile("sfence" ::: "memory");
#endif
}

/* The vector at i of a row of n numbers, which may end inside it. */
static inline vec load_end(const real *row, length i, length n) {
    return i + VL <= n ? load(row + i) : load_part(row + i, (int)(n - i));
}

static inline void store_end(real *row, length i, length n, vec x) {
    if (i + VL <= n) store(row + i, x);
    else store_part(row + i, x, (int)(n - i));
}

/* The sum of all shares goes to the first, always in their order. */
static inline void sum_shares(real *shares, length n, int n_shares) {
    for (int share = 1; share < n_shares; share++)
        for (length i = 0; i < n; i++) shares[i] += shares[share * n + i];
}

#endif
