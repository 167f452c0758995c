/* LEM, forward and backward. B rows of a batch, T steps, D features, H hidden units; the map: reference.py.
 *
 * P is H rounded up to whole vectors: a block of H columns has room for P, and what is beyond H is 0.
 * One row of a step's operands is x = [y_{n-1} | u_n | 1 | z_n], so that each half step is one product that takes
 * in input and bias; W is padded and joined with V and b for that.
 *
 * The batch goes in groups of rows: a thread computes all steps of a group, then those of the next, so that states
 * and pre-activations stay in the nearest cache; the weights come from the next ones.
 *
 * Kept for the backward pass: path (T, B, P), the states y after each step, which is also the output; and, group
 * after group, for every step and row, [z | tanh | step of z | step of y | tanh of y], each P; without gates
 * [z | tanh | tanh of y].
 *
 * Backward: for each group, steps in blocks from the last to the first. A block collects the gradients of the
 * pre-activations, and the operands that do not already lie in rows, in memory that stays in cache; then its
 * products are added to the gradients of the weights. Each thread has its own of these; they are added up in a
 * fixed order at the end. What was kept is only read.
 */

#include "gemm.h"
#include "lem.h"
#include "threads.h"

/* How many reals a vector holds, what P is a multiple of; and how many a row of `kept`. */
int lem_vector(void) { return VL; }
int lem_kept(int n_hidden, int gated) { return kept_length(n_hidden, gated); }

/* ---- forward ---- */

typedef struct {
    const lem_call *call;
    plan s;
    const real *first, *second; /* packed */
    real *room;                 /* per thread */
} forward_work;

static inline vec clamped(vec step, int clipped, const plan *s) {
    return clipped ? vec_min(vec_max(step, splat(s->low)), splat(s->high)) : step;
}

/* From pre-activations [z | 1 | 2] to the new z, in x, and to the values kept. */
static inline __attribute__((always_inline)) void half_z(real *x, const real *pre, real *kept, int n_rows,
                                                         const plan *s, const int gated, const int clipped) {
    const int P = s->P;
    for (int r = 0; r < n_rows; r++, x += s->ld_x, pre += s->ld_pre, kept += s->ld_kept) {
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
    for (int r = 0; r < n_rows; r++, x += s->ld_x, pre += s->ld_pre, kept += s->ld_kept, path += P) {
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
        real *path = call->path + ((size_t)n * s->B + row) * s->P;
        real *kept = call->kept ? kept_at(call, s, row, n_rows, n) : spare;
        fetch_input(x + s->P, s->ld_x, call, s, row, n_rows, n);
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

static size_t forward_share_size(const plan *s) { return lines((size_t)s->group * (s->ld_x + s->ld_pre + s->ld_kept)); }

static size_t forward_packed_size(const plan *s) {
    return packed_size(s->k_first, s->first) + packed_size(s->k_second, s->P);
}

static void forward_share(void *shared, int share, int n_shares) {
    forward_work *work = shared;
    const plan *s = &work->s;
    real *x = work->room + share * forward_share_size(s);
    real *pre = x + (size_t)s->group * s->ld_x, *spare = pre + (size_t)s->group * s->ld_pre;
    for (int g = first_row(s->n_groups, share, n_shares); g < first_row(s->n_groups, share + 1, n_shares); g++) {
        const int row = g * s->group, left = s->B - row;
        forward_group(work, row, left < s->group ? left : s->group, x, pre, spare);
    }
}

void lem_forward(const lem_call *call) {
    forward_work work = {.call = call, .s = planned(call)};
    const plan *s = &work.s;
    const size_t size = packed_size(s->k_first, s->first);
    real *weights = call->room, *packed = weights + lines(joined_size(s));
    join(weights, call, s);
    pack(packed, weights, s->k_first, s->first, 1, s->k_first);
    pack(packed + size, weights + (size_t)s->first * s->k_first, s->k_second, s->P, 1, s->k_second);
    work.first = packed, work.second = packed + size, work.room = packed + lines(forward_packed_size(s));
    in_threads(forward_share, &work, s->n_shares);
}

/* ---- backward ---- */

typedef struct {
    const lem_call *call;
    plan s;
    int block;                         /* steps */
    const real *to_z, *to_y, *to_u[2]; /* packed: from gradients of pre-activations back */
    real *gradients;                   /* of the weights, each share's */
    int ld_P;
    size_t n_W, n_Wy, n_V; /* sizes of a share's three: (first, ld_P), (P, ld_P), (D + 1, ld_pre) */
    real *room;                /* per thread */
} backward_work;

/* A thread's memory. Of a group, (group, P): gradients of the states, those from outside, the first states. Of a
 * block of its steps: gradients of pre-activations, [u 1], the old y, gradients of the input. At the end its
 * gradients of the weights, that of [V b] transposed.
 */
typedef struct {
    real *d_y, *d_z, *d_output, *first_y, *first_z, *pre, *u, *y, *d_u, *d_W, *d_Wy, *d_V;
} scratch;

/* The rows (n_rows, P) of a step's gradient from outside, *ld apart: as they lie there, or copied. */
static const real *incoming(const lem_call *call, const plan *s, real *copy, int row, int n_rows, int n,
                            ptrdiff_t *ld) {
    *ld = s->P;
    if (!call->d_outputs) return copy; /* zero */
    const real *d = call->d_outputs + row * call->d_batch + n * call->d_step;
    if (call->d_unit == 1 && s->H == s->P) {
        *ld = call->d_batch;
        return d;
    }
    for (int r = 0; r < n_rows; r++)
        for (int j = 0; j < s->H; j++)
            copy[(size_t)r * s->P + j] = d[r * call->d_batch + j * call->d_unit];
    return copy;
}

/* Through half a step: the gradients of its pre-activations from that of the new state; returns what reaches the
 * old state beside the product. A step that is clipped does not move.
 */
static inline __attribute__((always_inline)) vec half_back(vec d, vec tanh, vec step, vec old, real *d_tanh,
                                                           real *d_step, const plan *s, const int gated,
                                                           const int clipped) {
    const vec moved = d * step;
    store(d_tanh, moved * (1 - tanh * tanh));
    if (gated) {
        const vec slope = moved * (tanh - old) * (1 - step * (1 / s->dt));
        store(d_step, clipped ? pick((step > s->low) & (step < s->high), slope, (vec){0}) : slope);
    }
    return d - moved;
}

static inline __attribute__((always_inline)) void step_back(const backward_work *work, const scratch *m, int row,
                                                            int n_rows, int n, int at, const int gated,
                                                            const int clipped) {
    const lem_call *call = work->call;
    const plan *s = &work->s;
    const int P = s->P, first = gated ? 3 * P : P;
    const vec dt = splat(s->dt);
    ptrdiff_t ld_d;
    const real *d = incoming(call, s, m->d_output, row, n_rows, n, &ld_d);
    const real *kept = kept_at(call, s, row, n_rows, n), *values = kept;
    const real *old = n ? call->path + ((size_t)(n - 1) * s->B + row) * P : m->first_y;
    real *pre = m->pre + (size_t)at * s->ld_pre, *to = pre, *y = m->y + (size_t)at * work->ld_P, *state = m->d_y;
    for (int r = 0; r < n_rows; r++) {
        for (int j = 0; j < P; j += VL) {
            const vec old_y = load(old + j), step = gated ? load(values + 3 * P + j) : dt;
            const vec tanh_y = load(values + (gated ? 4 : 2) * P + j);
            store(y + j, old_y);
            store(state + j, half_back(load(state + j) + load(d + j), tanh_y, step, old_y, to + first + j,
                                       to + 2 * P + j, s, gated, clipped));
        }
        old += P, state += P, d += ld_d, values += s->ld_kept, to += s->ld_pre, y += work->ld_P;
    }
    gemm(n_rows, P, P, pre + first, s->ld_pre, work->to_z, m->d_z, P, 1);
    const int ld_old = n ? s->ld_kept : P;
    old = n ? kept - (size_t)n_rows * s->ld_kept : m->first_z, values = kept, to = pre, state = m->d_z;
    for (int r = 0; r < n_rows; r++) {
        for (int j = 0; j < P; j += VL)
            store(state + j, half_back(load(state + j), load(values + P + j), gated ? load(values + 2 * P + j) : dt,
                                       load(old + j), to + j, to + P + j, s, gated, clipped));
        old += ld_old, state += P, values += s->ld_kept, to += s->ld_pre;
    }
    gemm(n_rows, P, first, pre, s->ld_pre, work->to_y, m->d_y, P, 1);
}

/* What a block of n_steps from `begin` on gives to weights and input. */
static void gather_block(const backward_work *work, const scratch *m, int row, int n_rows, int begin, int n_steps) {
    const lem_call *call = work->call;
    const plan *s = &work->s;
    const int n = n_steps * n_rows, ld_u = (int)whole((size_t)s->D);
    const real *d_first = m->pre, *d_second = m->pre + s->first;
    if (call->d_W) gemm_tn(s->first, s->P, n, d_first, s->ld_pre, m->y, work->ld_P, m->d_W, work->ld_P);
    if (call->d_Wy)
        gemm_tn(s->P, s->P, n, d_second, s->ld_pre, kept_at(call, s, row, n_rows, begin), s->ld_kept, m->d_Wy,
                work->ld_P);
    if (call->d_V || call->d_b) {
        for (int k = 0; k < n_steps; k++)
            fetch_input(m->u + (size_t)k * n_rows * (s->D + 1), s->D + 1, call, s, row, n_rows, begin + k);
        gemm_tn(s->D + 1, s->all, n, m->u, s->D + 1, m->pre, s->ld_pre, m->d_V, s->ld_pre);
    }
    if (!call->d_u) return;
    gemm(n, s->D, s->first, d_first, s->ld_pre, work->to_u[0], m->d_u, ld_u, 0);
    gemm(n, s->D, s->P, d_second, s->ld_pre, work->to_u[1], m->d_u, ld_u, 1);
    for (int k = 0; k < n; k++)
        memcpy(call->d_u + ((size_t)(begin + k / n_rows) * s->B + row + k % n_rows) * s->D, m->d_u + (size_t)k * ld_u,
               (size_t)s->D * sizeof(real));
}

/* Read something of every cache line. */
static void touch(const real *p, size_t n) {
    for (size_t i = 0; i < n; i += 64 / sizeof(real))
        (void)*(const volatile real *)(p + i);
}

/* What the steps from `begin` to before `end` will read, into the cache, upwards: the processor fetches ahead of a
 * stream that rises, but loses the thread of steps that fall, each of which rises.
 */
static void bring_near(const lem_call *call, const plan *s, int row, int n_rows, int begin, int end) {
    touch(kept_at(call, s, row, n_rows, begin), (size_t)(end - begin) * n_rows * s->ld_kept);
    for (int n = begin ? begin - 1 : 0; n < end - 1; n++)
        touch(call->path + ((size_t)n * s->B + row) * s->P, (size_t)n_rows * s->P);
    for (int r = row; call->d_outputs && call->d_unit == 1 && r < row + n_rows; r++)
        for (int n = begin; n < end; n++)
            touch(call->d_outputs + r * call->d_batch + n * call->d_step, (size_t)s->H);
}

static void backward_group(const backward_work *work, const scratch *m, int row, int n_rows) {
    const lem_call *call = work->call;
    const plan *s = &work->s;
    const size_t size = (size_t)s->H * sizeof(real);
    memset(m->d_y, 0, (size_t)5 * s->group * s->P * sizeof(real)); /* up to first_z */
    for (int r = 0; r < n_rows; r++) {
        const size_t to = (size_t)r * s->P, at = (size_t)(row + r) * s->H;
        if (call->d_last_y) memcpy(m->d_y + to, call->d_last_y + at, size);
        if (call->d_last_z) memcpy(m->d_z + to, call->d_last_z + at, size);
        memcpy(m->first_y + to, call->y + at, size);
        memcpy(m->first_z + to, call->z + at, size);
    }
    for (int end = s->T, begin; end > 0; end = begin) {
        begin = end > work->block ? end - work->block : 0;
        bring_near(call, s, row, n_rows, begin, end);
        for (int n = end - 1; n >= begin; n--) {
            const int at = (n - begin) * n_rows;
            if (!call->gated) step_back(work, m, row, n_rows, n, at, 0, 0);
            else if (call->clipped) step_back(work, m, row, n_rows, n, at, 1, 1);
            else step_back(work, m, row, n_rows, n, at, 1, 0);
        }
        gather_block(work, m, row, n_rows, begin, end - begin);
    }
    for (int r = 0; r < n_rows; r++) {
        memcpy(call->d_y + (size_t)(row + r) * s->H, m->d_y + (size_t)r * s->P, size);
        memcpy(call->d_z + (size_t)(row + r) * s->H, m->d_z + (size_t)r * s->P, size);
    }
}

static size_t backward_share_size(const backward_work *work) {
    const plan *s = &work->s;
    const size_t states = (size_t)s->group * s->P, rows = (size_t)work->block * s->group;
    return lines(5 * states + rows * (s->ld_pre + work->ld_P + whole((size_t)s->D) + s->D + 1));
}

static void backward_share(void *shared, int share, int n_shares) {
    backward_work *work = shared;
    const plan *s = &work->s;
    const size_t states = (size_t)s->group * s->P, rows = (size_t)work->block * s->group;
    scratch m = {.pre = work->room + share * backward_share_size(work)};
    m.y = m.pre + rows * s->ld_pre, m.d_u = m.y + rows * work->ld_P;
    m.d_y = m.d_u + rows * whole((size_t)s->D), m.d_z = m.d_y + states, m.d_output = m.d_z + states;
    m.first_y = m.d_output + states, m.first_z = m.first_y + states, m.u = m.first_z + states;
    m.d_W = work->gradients + share * (work->n_W + work->n_Wy + work->n_V);
    m.d_Wy = m.d_W + work->n_W, m.d_V = m.d_Wy + work->n_Wy;
    for (int g = first_row(s->n_groups, share, n_shares); g < first_row(s->n_groups, share + 1, n_shares); g++) {
        const int row = g * s->group, left = s->B - row;
        backward_group(work, &m, row, left < s->group ? left : s->group);
    }
}

/* The sum of the shares, in their order, as the caller has the weights. */
static void reduce(const backward_work *work) {
    const lem_call *call = work->call;
    const plan *s = &work->s;
    const size_t size = work->n_W + work->n_Wy + work->n_V;
    real *sum = work->gradients;
    for (int share = 1; share < s->n_shares; share++)
        for (size_t i = 0; i < size; i += VL)
            store(sum + i, load(sum + i) + load(sum + share * size + i));
    gather(call->d_W, sum, work->ld_P, s->H, s->first / s->P, s);
    gather(call->d_Wy, sum + work->n_W, work->ld_P, s->H, 1, s);
    const real *d_V = sum + work->n_W + work->n_Wy, *d_b = d_V + (size_t)s->D * s->ld_pre;
    for (int i = 0; i < s->all / s->P * s->H; i++) {
        const int at = i / s->H * s->P + i % s->H;
        for (int d = 0; call->d_V && d < s->D; d++)
            call->d_V[(size_t)i * s->D + d] = d_V[(size_t)d * s->ld_pre + at];
        if (call->d_b) call->d_b[i] = d_b[at];
    }
}

static backward_work backward_planned(const lem_call *call) {
    backward_work work = {.call = call, .s = planned(call)};
    const plan *s = &work.s;
    work.block = (int)call->block < s->T ? (int)call->block : s->T;
    work.ld_P = padded(s->P);
    work.n_W = (size_t)s->first * work.ld_P, work.n_Wy = (size_t)s->P * work.ld_P;
    work.n_V = (size_t)(s->D + 1) * s->ld_pre;
    return work;
}

static size_t gradients_size(const backward_work *work) {
    return (work->n_W + work->n_Wy + work->n_V) * work->s.n_shares;
}

static size_t backward_packed_size(const plan *s) {
    return packed_size(s->P, s->P) + packed_size(s->first, s->P) + packed_size(s->first, s->D) +
           packed_size(s->P, s->D);
}

void lem_backward(const lem_call *call) {
    backward_work work = backward_planned(call);
    const plan *s = &work.s;
    real *first = call->room, *packed = first + lines(joined_size(s));
    const real *second = first + (size_t)s->first * s->k_first;
    real *to_y = packed + packed_size(s->P, s->P), *to_u = to_y + packed_size(s->first, s->P);
    real *second_to_u = to_u + packed_size(s->first, s->D);
    work.gradients = packed + lines(backward_packed_size(s));
    work.room = work.gradients + lines(gradients_size(&work));
    join(first, call, s);
    pack(packed, second + s->D + 1, s->P, s->P, s->k_second, 1);
    pack(to_y, first, s->first, s->P, s->k_first, 1);
    pack(to_u, first + s->P, s->first, s->D, s->k_first, 1);
    pack(second_to_u, second, s->P, s->D, s->k_second, 1);
    work.to_z = packed, work.to_y = to_y, work.to_u[0] = to_u, work.to_u[1] = second_to_u;
    memset(work.gradients, 0, gradients_size(&work) * sizeof(real));
    in_threads(backward_share, &work, s->n_shares);
    reduce(&work);
}

/* How many reals of scratch memory a pass needs. */
size_t lem_room(const lem_call *call, int backward) {
    const backward_work work = backward_planned(call);
    const plan *s = &work.s;
    const size_t n = lines(joined_size(s));
    if (!backward) return n + lines(forward_packed_size(s)) + s->n_shares * forward_share_size(s);
    return n + lines(backward_packed_size(s)) + lines(gradients_size(&work)) + s->n_shares * backward_share_size(&work);
}
