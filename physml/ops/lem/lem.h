/* What both passes of LEM know: the call, the sizes, the weights. lem.c tells the layout. */

#ifndef PHYSML_LEM_H
#define PHYSML_LEM_H

#include "vec.h"

#include <stdint.h>

/* All of a call. Strides count reals. What is absent is NULL: b in the backward pass, gradients nobody wants, and
 * `kept` where no backward pass follows. `room`: scratch memory, as much as lem_room says.
 */
typedef struct {
    int64_t n_batch, n_steps, d_in, n_hidden, gated, clipped, group, block, n_threads;
    double dt, low, high;
    const real *u, *y, *z, *W, *Wy, *V, *b; /* all but u contiguous */
    real *path, *kept, *last_y, *last_z, *room;
    const real *d_outputs, *d_last_y, *d_last_z;
    real *d_u, *d_y, *d_z, *d_W, *d_Wy, *d_V, *d_b; /* d_u (T, B, D) */
    int64_t u_batch, u_step, u_feature, d_batch, d_step, d_unit;
} lem_call;

/* What follows from the sizes. */
typedef struct {
    int T, B, D, H, P, group, n_groups, n_shares;
    int first, all;          /* columns of pre-activations: of the first half step, of both */
    int k_first, k_second;   /* columns of x that go into each half step; those of the second begin at P */
    int ld_x, ld_pre, ld_kept; /* lengths of rows */
    real dt, low, high;
} plan;

/* A length for rows of n reals: whole vectors, and an odd number of them, since rows a multiple of 4 KiB apart share
 * a few lines of the cache.
 */
static int padded(int n) { return (int)(whole((size_t)n) / VL | 1) * VL; }

/* The length of a row of `kept`. */
static int kept_length(int n_hidden, int gated) { return padded((gated ? 5 : 3) * (int)whole((size_t)n_hidden)); }

static plan planned(const lem_call *call) {
    plan s = {.T = (int)call->n_steps, .B = (int)call->n_batch, .D = (int)call->d_in, .H = (int)call->n_hidden};
    s.P = (int)whole((size_t)s.H);
    s.group = (int)call->group;
    s.n_groups = (s.B + s.group - 1) / s.group;
    s.n_shares = call->n_threads < s.n_groups ? (int)call->n_threads : s.n_groups;
    s.first = call->gated ? 3 * s.P : s.P;
    s.all = s.first + s.P;
    s.k_first = s.P + s.D + 1;
    s.k_second = s.D + 1 + s.P;
    s.ld_x = padded(s.P + s.k_second);
    s.ld_pre = padded(s.all);
    s.ld_kept = kept_length(s.H, (int)call->gated);
    s.dt = (real)call->dt, s.low = (real)call->low, s.high = (real)call->high;
    return s;
}

/* Where the values of step n lie, for a group of n_rows from `row` on. */
static real *kept_at(const lem_call *call, const plan *s, int row, int n_rows, int n) {
    return call->kept + ((size_t)row * s->T + (size_t)n * n_rows) * s->ld_kept;
}

/* [u_n | 1] of the rows of a group, ld apart. */
static void fetch_input(real *to, int ld, const lem_call *call, const plan *s, int row, int n_rows, int n) {
    const real *u = call->u + row * call->u_batch + n * call->u_step;
    for (int r = 0; r < n_rows; r++, to += ld, u += call->u_batch) {
        for (int d = 0; d < s->D; d++)
            to[d] = u[d * call->u_feature];
        to[s->D] = 1;
    }
}

/* Gates of H rows each become gates of P rows of length ld. */
static void spread(real *to, int ld, const real *from, int columns, int n_gates, const plan *s) {
    for (int g = 0; g < n_gates; g++)
        for (int i = 0; i < s->H; i++)
            memcpy(to + (size_t)(g * s->P + i) * ld, from + (size_t)(g * s->H + i) * columns,
                   (size_t)columns * sizeof(real));
}

/* The way back, for the gradient of a weight. */
static void gather(real *to, const real *from, int ld, int columns, int n_gates, const plan *s) {
    for (int g = 0; to && g < n_gates; g++)
        for (int i = 0; i < s->H; i++)
            memcpy(to + (size_t)(g * s->H + i) * columns, from + (size_t)(g * s->P + i) * ld,
                   (size_t)columns * sizeof(real));
}

static size_t joined_size(const plan *s) { return (size_t)s->first * s->k_first + (size_t)s->P * s->k_second; }

/* The two weights as the products want them, [W V b] (first, k_first) and behind it [V b Wy] (P, k_second). */
static void join(real *first, const lem_call *call, const plan *s) {
    const int n_first = s->first / s->P;
    const real *V = call->V + (size_t)n_first * s->H * s->D;
    real *second = first + (size_t)s->first * s->k_first;
    memset(first, 0, joined_size(s) * sizeof(real));
    spread(first, s->k_first, call->W, s->H, n_first, s);
    spread(first + s->P, s->k_first, call->V, s->D, n_first, s);
    spread(second, s->k_second, V, s->D, 1, s);
    spread(second + s->D + 1, s->k_second, call->Wy, s->H, 1, s);
    if (call->b) {
        spread(first + s->P + s->D, s->k_first, call->b, 1, n_first, s);
        spread(second + s->D, s->k_second, call->b + (size_t)n_first * s->H, 1, 1, s);
    }
}

#endif
