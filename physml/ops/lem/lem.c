/* LEM, forward and backward. B rows of a batch, T steps, D features, H hidden units; the map: reference.py.
 *
 * Widths. P is H rounded up to whole vectors: every block of H columns has room for P, and what is beyond H is 0.
 * One row of a step's operands is x = [y_{n-1} | u_n | 1 | z_n], so that each half step is one product that takes
 * in the input and the bias:
 *     [z 1 2] of step n = x[y u 1] by weights "first" (gates * P rows, P + D + 1)
 *     [y]     of step n = x[u 1 z] by weights "second" (P rows, D + 1 + P)
 * and the gradients of all weights are two products with the same operands.
 *
 * The batch goes in groups of rows that a whole thread works on: all steps of a group, then the next group. While
 * its weights lie in cache, a group is as small as a tile of the product, and its states never leave L1.
 *
 * Kept for the backward pass: path (T, B, P), the states y after each step, which is also the output; and, group
 * by group, for every step and row: [z | tanh | step of z | step of y | tanh of y], each P; without gates
 * [z | tanh | tanh of y].
 *
 * Backward: for each group, steps in blocks from the last to the first. A block collects x and the gradients of
 * the pre-activations in scratch memory that stays in L2; then it is added to the gradients of the weights, of which
 * each thread has its own, added up in a fixed order at the end. Saved memory is only read.
 */

#include "gemm.h"
#include "threads.h"
#include "vec.h"

#include <stdint.h>

enum { OUT_OF_MEMORY = 1 };

/* All of a call. Strides count reals. Absent tensors are NULL. */
typedef struct {
    int64_t n_batch, n_steps, d_in, n_hidden, gated, clipped, group, block, n_threads;
    double dt, low, high;
    const real *u, *y, *z, *W, *Wy, *V, *b; /* all but u contiguous */
    real *path, *kept, *last_y, *last_z;
    const real *d_outputs, *d_last_y, *d_last_z;
    real *d_u, *d_y, *d_z, *d_W, *d_Wy, *d_V, *d_b; /* d_u (T, B, D) */
    int64_t u_batch, u_step, u_feature, d_batch, d_step, d_unit;
} lem_call;

/* What follows from the sizes. */
typedef struct {
    int T, B, D, H, P, group, n_groups, n_shares;
    int first, all;         /* columns of pre-activations: of the first half step, of both */
    int k_first, k_second;  /* columns of x that go into each half step; the second begins at P */
    int ld_x, ld_pre, kept; /* lengths of rows */
    real dt, low, high;
} plan;

/* A length of rows for at least n reals: whole vectors, an odd number of them, as rows 4 KiB apart share few lines
 * of a cache. */
static int padded(int n) { return (int)(whole((size_t)n) / VL | 1) * VL; }

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
    s.kept = s.all + s.P;
    s.dt = (real)call->dt, s.low = (real)call->low, s.high = (real)call->high;
    return s;
}

/* How many reals a vector holds: what the caller rounds H up to. */
int lem_vector(void) { return VL; }

/* ---- weights ---- */

/* Rows of gates, H each, between the caller's matrix and one with P rows per gate and rows of length ld. The
 * backward pass has no b, and needs none. */
static void spread(real *to, int ld, const real *from, int columns, int n_gates, const plan *s) {
    for (int g = 0; from && g < n_gates; g++)
        for (int i = 0; i < s->H; i++)
            memcpy(to + (size_t)(g * s->P + i) * ld, from + (size_t)(g * s->H + i) * columns,
                   (size_t)columns * sizeof(real));
}

static void gather(real *to, const real *from, int ld, int columns, int n_gates, const plan *s) {
    for (int g = 0; g < n_gates; g++)
        for (int i = 0; i < s->H; i++)
            memcpy(to + (size_t)(g * s->H + i) * columns, from + (size_t)(g * s->P + i) * ld,
                   (size_t)columns * sizeof(real));
}

/* The two matrices as the products want them, rows [W V b] and [V b Wy]; `first` has room for both. */
static real *joined(const lem_call *call, const plan *s) {
    const size_t size = (size_t)s->first * s->k_first + (size_t)s->P * s->k_second;
    real *first = reals(size), *second = first + (size_t)s->first * s->k_first;
    if (!first) return NULL;
    memset(first, 0, size * sizeof(real));
    const int n_first = s->first / s->P;
    const real *V = call->V + (size_t)n_first * s->H * s->D, *b = call->b ? call->b + (size_t)n_first * s->H : NULL;
    spread(first, s->k_first, call->W, s->H, n_first, s);
    spread(first + s->P, s->k_first, call->V, s->D, n_first, s);
    spread(first + s->P + s->D, s->k_first, call->b, 1, n_first, s);
    spread(second, s->k_second, V, s->D, 1, s);
    spread(second + s->D, s->k_second, b, 1, 1, s);
    spread(second + s->D + 1, s->k_second, call->Wy, s->H, 1, s);
    return first;
}

/* ---- forward ---- */

typedef struct {
    const lem_call *call;
    plan s;
    const real *first, *second; /* packed */
    int failed;
} forward_work;

static void fetch_input(real *x, const lem_call *call, const plan *s, int row, int n_rows, int n) {
    const real *u = call->u + row * call->u_batch + n * call->u_step;
    for (int r = 0; r < n_rows; r++, x += s->ld_x, u += call->u_batch) {
        for (int d = 0; d < s->D; d++)
            x[s->P + d] = u[d * call->u_feature];
        x[s->P + s->D] = 1;
    }
}

static inline vec clamped(vec step, int clipped, const plan *s) {
    return clipped ? vec_min(vec_max(step, splat(s->low)), splat(s->high)) : step;
}

/* From pre-activations [z | 1 | 2] to the new z, in x, and to the values kept. */
static inline __attribute__((always_inline)) void half_z(real *x, const real *pre, real *kept, int n_rows,
                                                         const plan *s, const int gated, const int clipped) {
    const int P = s->P;
    for (int r = 0; r < n_rows; r++, x += s->ld_x, pre += s->ld_pre, kept += s->kept) {
        real *z = x + P + s->D + 1;
        for (int j = 0; j < P; j += VL) {
            const vec tanh_z = vec_tanh(load(pre + j)), old = load(z + j);
            vec step = splat(s->dt);
            if (gated) {
                step = clamped(s->dt * vec_sigmoid(load(pre + P + j)), clipped, s);
                store(kept + 2 * P + j, step);
                store(kept + 3 * P + j, clamped(s->dt * vec_sigmoid(load(pre + 2 * P + j)), clipped, s));
            }
            const vec new = old + step * (tanh_z - old);
            store(z + j, new);
            store(kept + j, new);
            store(kept + P + j, tanh_z);
        }
    }
}

/* From pre-activations [y] to the new y, in x and in the path. */
static inline __attribute__((always_inline)) void half_y(real *x, const real *pre, real *kept, real *path,
                                                         int n_rows, const plan *s, const int gated) {
    const int P = s->P;
    for (int r = 0; r < n_rows; r++, x += s->ld_x, pre += s->ld_pre, kept += s->kept, path += P) {
        for (int j = 0; j < P; j += VL) {
            const vec tanh_y = vec_tanh(load(pre + j)), old = load(x + j);
            const vec step = gated ? load(kept + 3 * P + j) : splat(s->dt);
            const vec new = old + step * (tanh_y - old);
            store(x + j, new);
            store(path + j, new);
            store(kept + (gated ? 4 : 2) * P + j, tanh_y);
        }
    }
}

static void forward_group(const forward_work *work, int row, int n_rows, real *x, real *pre, real *spare) {
    const lem_call *call = work->call;
    const plan *s = &work->s;
    memset(x, 0, (size_t)n_rows * s->ld_x * sizeof(real));
    real *z = x + s->P + s->D + 1;
    for (int r = 0; r < n_rows; r++) {
        memcpy(x + (size_t)r * s->ld_x, call->y + (size_t)(row + r) * s->H, (size_t)s->H * sizeof(real));
        memcpy(z + (size_t)r * s->ld_x, call->z + (size_t)(row + r) * s->H, (size_t)s->H * sizeof(real));
    }
    for (int n = 0; n < s->T; n++) {
        real *path = call->path + ((size_t)n * s->B + row) * s->P, *kept = spare;
        if (call->kept) kept = call->kept + ((size_t)row * s->T + (size_t)n * n_rows) * s->kept;
        fetch_input(x, call, s, row, n_rows, n);
        gemm(n_rows, s->first, s->k_first, x, s->ld_x, work->first, pre, s->ld_pre, 0);
        if (!call->gated) half_z(x, pre, kept, n_rows, s, 0, 0);
        else if (call->clipped) half_z(x, pre, kept, n_rows, s, 1, 1);
        else half_z(x, pre, kept, n_rows, s, 1, 0);
        gemm(n_rows, s->P, s->k_second, x + s->P, s->ld_x, work->second, pre, s->ld_pre, 0);
        if (call->gated) half_y(x, pre, kept, path, n_rows, s, 1);
        else half_y(x, pre, kept, path, n_rows, s, 0);
    }
    for (int r = 0; r < n_rows; r++) {
        memcpy(call->last_y + (size_t)(row + r) * s->H, x + (size_t)r * s->ld_x, (size_t)s->H * sizeof(real));
        memcpy(call->last_z + (size_t)(row + r) * s->H, z + (size_t)r * s->ld_x, (size_t)s->H * sizeof(real));
    }
}

static void forward_share(void *shared, int share, int n_shares) {
    forward_work *work = shared;
    const plan *s = &work->s;
    real *x = reals((size_t)s->group * (s->ld_x + s->ld_pre + s->kept));
    if (!x) {
        work->failed = 1;
        return;
    }
    real *pre = x + (size_t)s->group * s->ld_x, *spare = pre + (size_t)s->group * s->ld_pre;
    for (int g = first_row(s->n_groups, share, n_shares); g < first_row(s->n_groups, share + 1, n_shares); g++) {
        const int row = g * s->group, left = s->B - row;
        forward_group(work, row, left < s->group ? left : s->group, x, pre, spare);
    }
    free(x);
}

int lem_forward(const lem_call *call) {
    forward_work work = {.call = call, .s = planned(call)};
    const plan *s = &work.s;
    const size_t size = packed_size(s->k_first, s->first);
    real *weights = joined(call, s), *packed = reals(size + packed_size(s->k_second, s->P));
    if (weights && packed) {
        pack(packed, weights, s->k_first, s->first, 1, s->k_first);
        pack(packed + size, weights + (size_t)s->first * s->k_first, s->k_second, s->P, 1, s->k_second);
        work.first = packed, work.second = packed + size;
        in_threads(forward_share, &work, s->n_shares);
    } else work.failed = 1;
    free(weights);
    free(packed);
    return work.failed ? OUT_OF_MEMORY : 0;
}

/* ---- backward ---- */

typedef struct {
    const lem_call *call;
    plan s;
    int block;                                   /* steps */
    const real *to_z, *to_y, *to_u, *second_to_u; /* packed: from gradients of pre-activations back */
    real *d_first, *d_second;                    /* each share's, rows of length ld_x */
    int failed;
} backward_work;

/* A thread's scratch memory: for a group the gradients of the states and the first z, each (group, P); for a block
 * of its steps the operands, the gradients of the pre-activations and of the input. */
typedef struct {
    real *d_y, *d_z, *z, *x, *pre, *d_u;
} scratch;

static void add_incoming(real *d_y, const lem_call *call, const plan *s, int row, int n_rows, int n) {
    const real *d = call->d_outputs + row * call->d_batch + n * call->d_step;
    const int in_vectors = call->d_unit == 1 ? s->H / VL * VL : 0;
    for (int r = 0; r < n_rows; r++, d += call->d_batch, d_y += s->P) {
        for (int j = 0; j < in_vectors; j += VL)
            store(d_y + j, load(d_y + j) + load(d + j));
        for (int j = in_vectors; j < s->H; j++)
            d_y[j] += d[j * call->d_unit];
    }
}

/* The operands of a step once more. */
static void fetch_operands(real *x, const lem_call *call, const plan *s, const real *kept, int row, int n_rows,
                           int n) {
    fetch_input(x, call, s, row, n_rows, n);
    for (int r = 0; r < n_rows; r++, x += s->ld_x, kept += s->kept) {
        if (n) memcpy(x, call->path + ((size_t)(n - 1) * s->B + row + r) * s->P, (size_t)s->P * sizeof(real));
        else memcpy(x, call->y + (size_t)(row + r) * s->H, (size_t)s->H * sizeof(real));
        memcpy(x + s->P + s->D + 1, kept, (size_t)s->P * sizeof(real));
    }
}

/* Through half a step. d_state, the gradient of the new state, becomes what reaches the old one beside the product;
 * d_tanh and d_step get the gradients of the pre-activations. A step that is clipped does not move. */
static inline __attribute__((always_inline)) void
half_back(real *d_state, real *d_tanh, real *d_step, const real *tanh, const real *steps, const real *old, int ld_old,
          int n_rows, const plan *s, const int gated, const int clipped) {
    for (int r = 0; r < n_rows; r++) {
        for (int j = 0; j < s->P; j += VL) {
            const vec d = load(d_state + j), t = load(tanh + j), step = gated ? load(steps + j) : splat(s->dt);
            const vec moved = d * step;
            store(d_tanh + j, moved * (1 - t * t));
            store(d_state + j, d - moved);
            if (!gated) continue;
            const vec slope = moved * (t - load(old + j)) * (1 - step * (1 / s->dt));
            store(d_step + j, clipped ? pick((step > s->low) & (step < s->high), slope, (vec){0}) : slope);
        }
        d_state += s->P, d_tanh += s->ld_pre, d_step += s->ld_pre, tanh += s->kept, steps += s->kept, old += ld_old;
    }
}

static inline __attribute__((always_inline)) void step_back(const backward_work *work, const scratch *m, real *x,
                                                            real *pre, int row, int n_rows, int n, const int gated,
                                                            const int clipped) {
    const lem_call *call = work->call;
    const plan *s = &work->s;
    const int P = s->P;
    const real *kept = call->kept + ((size_t)row * s->T + (size_t)n * n_rows) * s->kept;
    const real *old_z = n ? kept - (size_t)n_rows * s->kept : m->z;
    fetch_operands(x, call, s, kept, row, n_rows, n);
    if (call->d_outputs) add_incoming(m->d_y, call, s, row, n_rows, n);
    half_back(m->d_y, pre + s->first, pre + 2 * P, kept + (gated ? 4 : 2) * P, kept + 3 * P, x, s->ld_x, n_rows, s,
              gated, clipped);
    gemm(n_rows, P, P, pre + s->first, s->ld_pre, work->to_z, m->d_z, P, 1);
    half_back(m->d_z, pre, pre + P, kept + P, kept + 2 * P, old_z, n ? s->kept : P, n_rows, s, gated, clipped);
    gemm(n_rows, P, s->first, pre, s->ld_pre, work->to_y, m->d_y, P, 1);
}

/* What a block of n_steps, from `begin` on, gives to weights and input. */
static void gather_block(const backward_work *work, const scratch *m, int share, int row, int n_rows, int begin,
                         int n_steps) {
    const lem_call *call = work->call;
    const plan *s = &work->s;
    const int n = n_steps * n_rows, rest = s->D + 1;
    const int from = call->d_W ? 0 : s->P, inputs = call->d_V || call->d_b;
    const int columns = (inputs ? s->k_first : s->P) - from, from_2 = inputs ? 0 : rest;
    real *d_first = work->d_first + (size_t)share * s->first * s->ld_x;
    real *d_second = work->d_second + (size_t)share * s->P * s->ld_x;
    gemm_tn(s->first, columns, n, m->pre, s->ld_pre, m->x + from, s->ld_x, d_first + from, s->ld_x);
    gemm_tn(s->P, (call->d_Wy ? s->k_second : rest) - from_2, n, m->pre + s->first, s->ld_pre,
            m->x + s->P + from_2, s->ld_x, d_second + from_2, s->ld_x);
    if (!call->d_u) return;
    const int ld = (int)whole((size_t)s->D);
    gemm(n, s->D, s->first, m->pre, s->ld_pre, work->to_u, m->d_u, ld, 0);
    gemm(n, s->D, s->P, m->pre + s->first, s->ld_pre, work->second_to_u, m->d_u, ld, 1);
    for (int k = 0; k < n; k++)
        memcpy(call->d_u + ((size_t)(begin + k / n_rows) * s->B + row + k % n_rows) * s->D, m->d_u + (size_t)k * ld,
               (size_t)s->D * sizeof(real));
}

static void backward_group(const backward_work *work, const scratch *m, int share, int row, int n_rows) {
    const lem_call *call = work->call;
    const plan *s = &work->s;
    const size_t H = (size_t)s->H * sizeof(real);
    memset(m->d_y, 0, (size_t)3 * s->group * s->P * sizeof(real)); /* d_y, d_z, z */
    memset(m->x, 0, (size_t)work->block * s->group * s->ld_x * sizeof(real));
    for (int r = 0; r < n_rows; r++) {
        const size_t to = (size_t)r * s->P, at = (size_t)(row + r) * s->H;
        if (call->d_last_y) memcpy(m->d_y + to, call->d_last_y + at, H);
        if (call->d_last_z) memcpy(m->d_z + to, call->d_last_z + at, H);
        memcpy(m->z + to, call->z + at, H);
    }
    for (int end = s->T, begin; end > 0; end = begin) {
        begin = end > work->block ? end - work->block : 0;
        for (int n = end - 1; n >= begin; n--) {
            real *x = m->x + (size_t)(n - begin) * n_rows * s->ld_x;
            real *pre = m->pre + (size_t)(n - begin) * n_rows * s->ld_pre;
            if (!call->gated) step_back(work, m, x, pre, row, n_rows, n, 0, 0);
            else if (call->clipped) step_back(work, m, x, pre, row, n_rows, n, 1, 1);
            else step_back(work, m, x, pre, row, n_rows, n, 1, 0);
        }
        gather_block(work, m, share, row, n_rows, begin, end - begin);
    }
    for (int r = 0; r < n_rows; r++) {
        memcpy(call->d_y + (size_t)(row + r) * s->H, m->d_y + (size_t)r * s->P, H);
        memcpy(call->d_z + (size_t)(row + r) * s->H, m->d_z + (size_t)r * s->P, H);
    }
}

static void backward_share(void *shared, int share, int n_shares) {
    backward_work *work = shared;
    const plan *s = &work->s;
    const size_t states = (size_t)s->group * s->P, rows = (size_t)work->block * s->group;
    scratch m = {.d_y = reals(3 * states + rows * (s->ld_x + s->ld_pre + whole((size_t)s->D)))};
    if (!m.d_y) {
        work->failed = 1;
        return;
    }
    m.d_z = m.d_y + states, m.z = m.d_z + states;
    m.x = m.z + states, m.pre = m.x + rows * s->ld_x, m.d_u = m.pre + rows * s->ld_pre;
    for (int g = first_row(s->n_groups, share, n_shares); g < first_row(s->n_groups, share + 1, n_shares); g++) {
        const int row = g * s->group, left = s->B - row;
        backward_group(work, &m, share, row, left < s->group ? left : s->group);
    }
    free(m.d_y);
}

/* The weights' gradients: the shares' sum, in their order, as the caller has them. */
static void reduce(const lem_call *call, const plan *s, real *d_first, real *d_second) {
    const size_t n_first = (size_t)s->first * s->ld_x, n_second = (size_t)s->P * s->ld_x;
    for (int share = 1; share < s->n_shares; share++) {
        for (size_t i = 0; i < n_first; i++)
            d_first[i] += d_first[share * n_first + i];
        for (size_t i = 0; i < n_second; i++)
            d_second[i] += d_second[share * n_second + i];
    }
    const int gates = s->first / s->P;
    if (call->d_W) gather(call->d_W, d_first, s->ld_x, s->H, gates, s);
    if (call->d_Wy) gather(call->d_Wy, d_second + s->D + 1, s->ld_x, s->H, 1, s);
    if (call->d_V) {
        gather(call->d_V, d_first + s->P, s->ld_x, s->D, gates, s);
        gather(call->d_V + (size_t)gates * s->H * s->D, d_second, s->ld_x, s->D, 1, s);
    }
    if (call->d_b) {
        gather(call->d_b, d_first + s->P + s->D, s->ld_x, 1, gates, s);
        gather(call->d_b + (size_t)gates * s->H, d_second + s->D, s->ld_x, 1, 1, s);
    }
}

int lem_backward(const lem_call *call) {
    backward_work work = {.call = call, .s = planned(call)};
    const plan *s = &work.s;
    work.block = (int)call->block < s->T ? (int)call->block : s->T;
    const size_t n_z = packed_size(s->P, s->P), n_y = packed_size(s->first, s->P);
    const size_t n_u = packed_size(s->first, s->D), n_2 = packed_size(s->P, s->D);
    const size_t n_first = (size_t)s->first * s->ld_x, n_second = (size_t)s->P * s->ld_x;
    const size_t n_gradients = (n_first + n_second) * s->n_shares;
    real *first = joined(call, s), *packed = reals(n_z + n_y + n_u + n_2), *gradients = reals(n_gradients);
    if (first && packed && gradients) {
        const real *second = first + (size_t)s->first * s->k_first;
        real *to_y = packed + n_z, *to_u = to_y + n_y, *second_to_u = to_u + n_u;
        pack(packed, second + s->D + 1, s->P, s->P, s->k_second, 1);
        pack(to_y, first, s->first, s->P, s->k_first, 1);
        pack(to_u, first + s->P, s->first, s->D, s->k_first, 1);
        pack(second_to_u, second, s->P, s->D, s->k_second, 1);
        work.to_z = packed, work.to_y = to_y, work.to_u = to_u, work.second_to_u = second_to_u;
        memset(gradients, 0, n_gradients * sizeof(real));
        work.d_first = gradients, work.d_second = gradients + n_first * s->n_shares;
        in_threads(backward_share, &work, s->n_shares);
        reduce(call, s, work.d_first, work.d_second);
    } else work.failed = 1;
    free(first);
    free(packed);
    free(gradients);
    return work.failed ? OUT_OF_MEMORY : 0;
}
