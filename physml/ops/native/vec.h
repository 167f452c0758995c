/* Vectors of `real`, the type that -DREAL=float or -DREAL=double chooses.
 *
 * Only GCC's and Clang's vector extensions: one source gives AVX-512, AVX, SSE2 or NEON, by the flags.
 * A vec holds VL numbers. + - * / act on each of them, and a scalar beside a vec counts for all.
 * Comparisons give a `mask` of 0 or -1 per number, which `pick` takes.
 */
#ifndef PHYSML_VEC_H
#define PHYSML_VEC_H

#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#ifndef REAL
#error "compile with -DREAL=float or -DREAL=double"
#endif
#if defined(__AVX512F__)
#define VEC_BYTES 64
#elif defined(__AVX__)
#define VEC_BYTES 32
#else
#define VEC_BYTES 16
#endif

#define INLINE static inline __attribute__((always_inline))

typedef REAL real;
typedef real vec __attribute__((vector_size(VEC_BYTES)));
typedef real loose __attribute__((vector_size(VEC_BYTES), aligned(sizeof(real)), may_alias));
typedef __typeof__((vec){0} < (vec){0}) mask;
#define VL ((int)(VEC_BYTES / sizeof(real)))

/* n rounded up to whole vectors */
static inline size_t whole(size_t n) { return (n + VL - 1) / VL * VL; }

/* Any address that a real may have; where it is a multiple of VEC_BYTES it costs nothing more. */
static inline vec load(const real *p) { return *(const loose *)p; }
static inline void store(real *p, vec x) { *(loose *)p = x; }
static inline vec splat(real x) { return x - (vec){0}; }

/* v, held in a register: where few registers are, the compiler would read it from memory for every use. */
INLINE vec in_register(vec v) {
#ifdef __x86_64__
    __asm__("" : "+v"(v));
#elif defined(__aarch64__)
    __asm__("" : "+w"(v));
#endif
    return v;
}

/* The first n < VL numbers; zero in the others. */
static inline vec load_part(const real *p, int n) {
    vec x = {0};
    memcpy(&x, p, (size_t)n * sizeof(real));
    return x;
}
static inline void store_part(real *p, vec x, int n) { memcpy(p, &x, (size_t)n * sizeof(real)); }

static inline vec pick(mask where, vec a, vec b) { return (vec)((where & (mask)a) | (~where & (mask)b)); }

/* NaN in x stays. As a loop over the numbers of a vec this would be one instruction by itself, but GCC takes such
 * loops apart where they are inlined. */
static inline vec vec_min(vec x, vec most) { return pick(x > most, most, x); }
static inline vec vec_max(vec x, vec least) { return pick(x < least, least, x); }

/* x P(x^2) / Q(x^2), fitted for the least relative error. It never leaves [-1, 1], and from 8.178733 on it is 1
 * exactly: where a unit is saturated, 1 - tanh^2 is 0 and stops a gradient of any size. */
static inline vec tanh_float(vec x) {
    x = vec_max(vec_min(x, splat((real)8.178733)), splat((real)-8.178733));
    const vec s = x * x;
    vec p = s * (real)1.335393e-08 + (real)2.0608546e-05;
    vec q = s * (real)7.776256e-07 + (real)3.2855815e-04;
    p = p * s + (real)3.4955556e-03;
    q = q * s + (real)2.587686e-02;
    p = p * s + (real)1.3380998e-01;
    q = q * s + (real)4.6714315e-01;
    p = p * s + (real)1;
    q = q * s + (real)1;
    return x * p / q;
}

/* exp(x) = 2^k exp(r), |r| <= log(2) / 2; x is kept in [-87, 87], where nothing overflows. */
static inline vec exp_float(vec x) {
    const real shift = (real)12582912; /* 1.5 * 2^23: what is added to it loses its fraction */
    x = vec_max(vec_min(x, splat((real)87)), splat((real)-87));
    const vec k = (x * (real)1.44269504 + shift) - shift;
    const vec r = (x - k * (real)0.693359375) + k * (real)2.12194440e-04; /* log(2) in two parts */
    vec p = r * (real)1.3813144e-03 + (real)8.369419e-03;
    p = p * r + (real)4.1668456e-02;
    p = p * r + (real)1.6666515e-01;
    p = p * r + (real)4.9999994e-01;
    p = p * (r * r) + (r + (real)1);
    return (vec)((mask)p + (__builtin_convertvector(k, mask) << 23));
}

/* In float by formula, with a relative error of 3.4e-7 at most; in double by libm. NaN stays NaN; in float
 * sigmoid never falls below exp(-87). */
static inline vec vec_tanh(vec x) {
    if (sizeof(real) == sizeof(float)) return tanh_float(x);
    for (int i = 0; i < VL; i++) x[i] = (real)tanh((double)x[i]);
    return x;
}
static inline vec vec_sigmoid(vec x) {
    if (sizeof(real) == sizeof(float)) return 1 / (1 + exp_float(-x));
    for (int i = 0; i < VL; i++) x[i] = (real)(1 / (1 + exp(-(double)x[i])));
    return x;
}

static inline real sum(vec x) {
    real total = 0;
    for (int k = 0; k < VL; k++) total += x[k];
    return total;
}

/* n reals in whole cache lines: the parts of one piece of scratch memory are as long as this. */
static inline size_t lines(size_t n) { return (n * sizeof(real) + 63) / 64 * (64 / sizeof(real)); }

/* Memory for n reals, aligned for vectors, to be given to free(); NULL if there is none. */
static inline real *reals(size_t n) {
    void *p = NULL;
    return posix_memalign(&p, 64, (n ? n : 1) * sizeof(real)) ? NULL : p;
}

#endif
