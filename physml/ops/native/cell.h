/* What the loops of a compiled recurrence (cell.c) and the elementwise operations of its step share.
 *
 * The operations are generated code that includes this file; its forward_stage and backward_stage go through one level
 * of the step, for all rows of a group.
 */
#ifndef PHYSML_CELL_H
#define PHYSML_CELL_H

#include "vec.h"

#include <stdint.h>

/* Offsets and lengths count reals. `at` is where a state, an input or an operand begins in a row of the step, `d_at` in
 * a row of its gradients. */
typedef struct { int64_t width, at, before, d_at, read; } state_place; /* before: the row of the step before holds it;
                                                                       read: its gradient is written at every step */
typedef struct { int64_t width, room, at, d_at, batch, step, unit; } input_place; /* d_at -1: no gradient is wanted */
typedef struct { int64_t level, n, pre, first, pieces, weights, length; } group_place;
typedef struct { int64_t at, k, column; } piece_place;              /* operands that lie together, and their columns */
typedef struct { int64_t group, column, k, to_state, d_at, add; } back_place; /* a gradient that a product gives */

typedef struct cell_call cell_call;
typedef struct frame frame;

struct cell_call {
    int64_t n_batch, n_steps, block_rows, block_steps, n_threads, keep;
    int64_t n_states, n_inputs, n_groups, n_backs, n_levels, one; /* one: where the 1 is, or -1 */
    int64_t ld_row, ld_pre, ld_vec, ld_fixed, ld_state, ld_op, ld_in, out_width, out_room, n_weights, n_numbers;
    const int64_t *at;
    const state_place *states;
    const input_place *inputs;
    const group_place *groups;
    const piece_place *pieces;
    const back_place *backs;
    const double *numbers;
    const int64_t *trained; /* per group of products, for the backward pass: whether its weights get a gradient */
    const real **u, **state, **d_last; /* one per input, state, state */
    real **last, **d_first, **d_u;     /* d_u (T, B, width) */
    const real *vec, *fixed, *weights;
    real *path, *out;
    const real *d_out;
    real *d_vec, *d_fixed, *d_weights, *scratch; /* scratch: as many as cell_room says */
    int64_t d_batch, d_step, d_unit;
    void (*forward_stage)(int stage, int keep, const frame *f);
    void (*backward_stage)(int stage, const frame *f);
};

/* What the generated code sees of one step: pointers to the first row of a group. */
struct frame {
    const cell_call *call;
    const real *numbers;
    int n_rows, ld_d_out;
    real *prev, *cur, *next, *pre, *out;
    const real *fixed, *d_out, *d_new;
    real *d_vec, *d_fixed, *d_old, *d_op, *d_in, *d_pre;
};

/* -1 in the first n lanes; lanes beyond the width of a row are cleared before a product reads them. */
INLINE mask lanes(int n) {
    mask lane;
    for (int i = 0; i < VL; i++) lane[i] = i;
    return lane < n;
}
INLINE vec cleared(vec x, mask live) { return (vec)((mask)x & live); }

#define EACH_LANE(name, expression)            \
    INLINE vec name(vec x) {                   \
        for (int i = 0; i < VL; i++) {         \
            const double v = (double)x[i];     \
            x[i] = (real)(expression);         \
        }                                      \
        return x;                              \
    }
EACH_LANE(log_lanes, log(v))
EACH_LANE(sin_lanes, sin(v))
EACH_LANE(cos_lanes, cos(v))
EACH_LANE(vec_erf, erf(v))
EACH_LANE(softplus_lanes, v > 20 ? v : log1p(exp(v)))
EACH_LANE(exp_lanes, exp(v))

INLINE vec vec_sqrt(vec x) {
    for (int i = 0; i < VL; i++) x[i] = sizeof(real) == sizeof(float) ? (real)sqrtf((float)x[i]) : (real)sqrt((double)x[i]);
    return x;
}
/* Beyond the range of exp_float lane by lane. */
INLINE vec vec_exp(vec x) {
    if (sizeof(real) != sizeof(float)) return exp_lanes(x);
    for (int i = 0; i < VL; i++)
        if (x[i] > 87 || x[i] < -87) return exp_lanes(x);
    return exp_float(x);
}

/* log(m 2^k) = k log(2) + 2 artanh(s), s = (m - 1) / (m + 1), m from 1/sqrt(2) to sqrt(2); for normal x > 0. */
INLINE vec log_float(vec x) {
    const mask k = ((mask)x - 0x3f3504f3) >> 23;
    const vec m = (vec)((mask)x - (k << 23)), s = (m - 1) / (m + 1), q = s * s;
    vec p = q * (real)(2.0 / 9) + (real)(2.0 / 7);
    p = p * q + (real)(2.0 / 5);
    p = p * q + (real)(2.0 / 3);
    const vec n = __builtin_convertvector(k, vec);
    return n * (real)0.693359375 + (n * (real)-2.12194440e-04 + (s + s) + s * q * p);
}
INLINE vec vec_log(vec x) {
    if (sizeof(real) != sizeof(float)) return log_lanes(x);
    const vec inside = log_float(x);
    const vec below = pick(x == 0, splat((real)-INFINITY), splat((real)NAN));
    return pick(x > (real)1.2e-38, pick(x > (real)3.4e38, x, inside), pick(x > 0, log_float(x * (real)16777216) - (real)16.635532, below));
}

/* max(x, 0) + log(1 + e), e = exp(-|x|); log(u) e / (u - 1) for what rounding took from u = 1 + e. */
INLINE vec vec_softplus(vec x) {
    if (sizeof(real) != sizeof(float)) return softplus_lanes(x);
    const vec e = exp_float(pick(x < 0, x, -x)), u = 1 + e, part = u - 1;
    const vec small = pick(part > 0, log_float(u) * (e / pick(part > 0, part, splat(1))), e);
    return pick(x > 0, x, (vec){0}) + pick(x == x, small, x);
}

/* r = x - k pi/2, |r| <= pi/4, and the series of sine or cosine; beyond 8192 the reduction loses digits. */
INLINE vec wave_float(vec x, int quarter) {
    for (int i = 0; i < VL; i++)
        if (!(x[i] > -8192 && x[i] < 8192)) return quarter ? cos_lanes(x) : sin_lanes(x);
    const real shift = (real)12582912;
    const vec k = (x * (real)0.636619772 + shift) - shift;
    const vec r = ((x - k * (real)1.5703125) - k * (real)4.837512969970703e-04) - k * (real)7.549789948768648e-08, q = r * r;
    const vec sine = r + r * q * ((real)(-1.0 / 6) + q * ((real)(1.0 / 120) + q * ((real)(-1.0 / 5040) + q * (real)(1.0 / 362880))));
    const vec cosine = 1 + q * ((real)-0.5 + q * ((real)(1.0 / 24) + q * ((real)(-1.0 / 720) + q * (real)(1.0 / 40320))));
    const mask turn = __builtin_convertvector(k, mask) + quarter;
    const vec value = pick((turn & 1) != 0, cosine, sine);
    return pick((turn & 2) != 0, -value, value);
}
INLINE vec vec_sin(vec x) { return sizeof(real) == sizeof(float) ? wave_float(x, 0) : sin_lanes(x); }
INLINE vec vec_cos(vec x) { return sizeof(real) == sizeof(float) ? wave_float(x, 1) : cos_lanes(x); }

INLINE vec vec_abs(vec x) { return pick(x < 0, -x, x); }
INLINE vec vec_erf_slope(vec x) { return (real)1.1283791670955126 * vec_exp(-x * x); }

#endif
