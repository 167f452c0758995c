/* A recurrence whose step was compiled: all steps forward, and back. physml/ops/cell tells what a step is.
 *
 * The elementwise operations of the step, level by level, are functions of a library of their own, made from cell.h and
 * generated code. Here are the loops over groups of rows, steps and products, by tables.
 *
 * The batch goes in groups of rows, each through all steps. `path` holds, group after group, for the steps -1 to T and
 * each row of the batch, a row of the step: states before it, input, 1, operands of products, and values for the
 * backward pass. Without a backward pass three such rows are used in turn.
 *
 * Backward: blocks of steps from the last to the first. A block collects the gradients of the results of products;
 * then the gradients of the weights are one product per group of weights. Each thread has its own of these; they are
 * added up in a fixed order.
 */
#include "cell.h"
#include "gemm.h"
#include "threads.h"

int cell_vector(void) { return VL; }

/* A call's scratch memory: numbers, packed weights, gradients of each share, and what each share works in. */
typedef struct {
    const cell_call *call;
    real *numbers, *packed, *gradients, *shares;
    size_t n_packed, n_gradients, n_share;
    int n_blocks, n_shares;
} cell_work;

static inline size_t cell_path_length(const cell_call *c, int n_rows) {
    return (size_t)(c->n_steps + 2) * n_rows * c->ld_row;
}

/* The row of step n, from -1 to T, of a group. */
static inline real *row_of(const cell_call *c, real *base, int n_rows, int n) {
    const size_t place = c->keep ? (size_t)(n + 1) : (size_t)((n + 1) % 3);
    return base + place * n_rows * c->ld_row;
}

/* One input of one row of the batch at step n. */
static inline void fetch(real *to, const real *u, const input_place *in, int width) {
    if (in->unit == 1) memcpy(to, u, (size_t)width * sizeof(real));
    else
        for (int i = 0; i < width; i++) to[i] = u[i * in->unit];
}

static void forward_group(const cell_work *work, int row, int n_rows, real *base, real *pre) {
    const cell_call *c = work->call;
    frame f = {.call = c, .numbers = work->numbers, .n_rows = n_rows, .pre = pre};
    f.fixed = c->fixed + (size_t)row * c->ld_fixed;
    memset(row_of(c, base, n_rows, -1), 0, (size_t)2 * n_rows * c->ld_row * sizeof(real));
    for (int k = 0; k < c->n_states; k++)
        for (int r = 0; r < n_rows; r++)
            if (c->states[k].at >= 0)
                memcpy(row_of(c, base, n_rows, c->states[k].before ? -1 : 0) + (size_t)r * c->ld_row + c->states[k].at,
                       c->state[k] + (size_t)(row + r) * c->states[k].width,
                       (size_t)c->states[k].width * sizeof(real));
    for (int n = 0; n < c->n_steps; n++) {
        f.prev = row_of(c, base, n_rows, n - 1), f.cur = row_of(c, base, n_rows, n), f.next = row_of(c, base, n_rows, n + 1);
        f.out = c->out + ((size_t)n * c->n_batch + row) * c->out_room;
        for (int k = 0; k < c->n_inputs; k++) {
            const input_place *in = c->inputs + k;
            const int width = (int)in->width, room = (int)in->room;
            for (int r = 0; r < n_rows; r++) {
                real *to = f.cur + (size_t)r * c->ld_row + in->at;
                fetch(to, c->u[k] + (row + r) * in->batch + n * in->step, in, width);
                for (int i = width; i < room; i++) to[i] = 0;
            }
        }
        for (int r = 0; c->one >= 0 && r < n_rows; r++) f.cur[(size_t)r * c->ld_row + c->one] = 1;
        const real *packed = work->packed;
        const group_place *g = c->groups, *end = g + c->n_groups;
        for (int level = 0; level < c->n_levels; level++) {
            c->forward_stage(level, (int)c->keep, &f);
            for (; g < end && g->level == level + 1; g++)
                for (int p = 0; p < g->pieces; p++) {
                    const piece_place *piece = c->pieces + g->first + p;
                    gemm(n_rows, (int)g->n, (int)piece->k, f.cur + piece->at, c->ld_row, packed, f.pre + g->pre, c->ld_pre, p > 0);
                    packed += packed_size((int)piece->k, (int)g->n);
                }
        }
    }
    for (int k = 0; k < c->n_states; k++) {
        const state_place *s = c->states + k;
        const real *from = row_of(c, base, n_rows, s->before ? (int)c->n_steps - 1 : (int)c->n_steps) + s->at;
        for (int r = 0; r < n_rows; r++)
            memcpy(c->last[k] + (size_t)(row + r) * s->width, from + (size_t)r * c->ld_row, (size_t)s->width * sizeof(real));
    }
}

static void forward_share(void *shared, int share, int n_shares) {
    cell_work *work = shared;
    const cell_call *c = work->call;
    real *pre = work->shares + share * work->n_share, *ring = pre + (size_t)c->block_rows * c->ld_pre;
    for (int g = first_row(work->n_blocks, share, n_shares); g < first_row(work->n_blocks, share + 1, n_shares); g++) {
        const int row = g * (int)c->block_rows, left = (int)c->n_batch - row;
        real *base = c->keep ? c->path + cell_path_length(c, row) : ring;
        forward_group(work, row, left < c->block_rows ? left : (int)c->block_rows, base, pre);
    }
}

/* Whole cache lines. */
static inline size_t apart(size_t n) { return (n + 15) / 16 * 16; }

static cell_work planned_work(const cell_call *c, int backward) {
    cell_work work = {.call = c};
    work.n_blocks = (int)((c->n_batch + c->block_rows - 1) / c->block_rows);
    work.n_shares = c->n_threads < work.n_blocks ? (int)c->n_threads : work.n_blocks;
    const size_t rows = (size_t)c->block_rows, all = rows * c->block_steps;
    if (backward) {
        for (const back_place *b = c->backs; b < c->backs + c->n_backs; b++)
            work.n_packed += packed_size((int)c->groups[b->group].n, (int)b->k);
        work.n_gradients = apart((size_t)c->n_weights + c->ld_vec);
        work.n_share = apart(all * (c->ld_pre + c->ld_in) + rows * (2 * c->ld_state + c->ld_op + c->out_room));
    } else {
        for (int g = 0; g < c->n_groups; g++)
            for (int p = 0; p < c->groups[g].pieces; p++)
                work.n_packed += packed_size((int)c->pieces[c->groups[g].first + p].k, (int)c->groups[g].n);
        work.n_share = apart(rows * (c->ld_pre + (c->keep ? 0 : 3 * c->ld_row)));
    }
    work.numbers = c->scratch;
    work.packed = work.numbers + apart((size_t)c->n_numbers);
    work.gradients = work.packed + apart(work.n_packed);
    work.shares = work.gradients + work.n_gradients * work.n_shares;
    return work;
}

size_t cell_room(const cell_call *c, int backward) {
    const cell_work work = planned_work(c, backward);
    return (size_t)(work.shares - c->scratch) + work.n_share * work.n_shares;
}

void cell_forward(const cell_call *c) {
    cell_work work = planned_work(c, 0);
    for (int i = 0; i < c->n_numbers; i++) work.numbers[i] = (real)c->numbers[i];
    real *to = work.packed;
    for (const group_place *g = c->groups; g < c->groups + c->n_groups; g++)
        for (int p = 0; p < g->pieces; p++) {
            const piece_place *piece = c->pieces + g->first + p;
            pack(to, c->weights + g->weights + piece->column, (int)piece->k, (int)g->n, 1, (ptrdiff_t)g->length);
            to += packed_size((int)piece->k, (int)g->n);
        }
    in_threads(forward_share, &work, work.n_shares);
}

/* ---- backward ---- */

typedef struct {
    real *pre, *in, *state, *other, *op, *out, *weights, *vec;
} cell_scratch;

static const real *incoming_row(const cell_call *c, real *copy, int row, int n_rows, int n, int *ld) {
    *ld = (int)c->out_room;
    if (!c->d_out) return copy; /* zero */
    const real *d = c->d_out + row * c->d_batch + n * c->d_step;
    if (c->d_unit == 1 && c->out_width == c->out_room) {
        *ld = (int)c->d_batch;
        return d;
    }
    for (int r = 0; r < n_rows; r++)
        for (int j = 0; j < c->out_width; j++) copy[(size_t)r * c->out_room + j] = d[r * c->d_batch + j * c->d_unit];
    return copy;
}

/* Read something of every cache line, upwards: the processor does not foresee a stream that falls. */
static void touch(const real *p, size_t n) {
    for (size_t i = 0; i < n; i += 64 / sizeof(real)) (void)*(const volatile real *)(p + i);
}

static void block_products(const cell_work *work, const cell_scratch *m, real *base, int row, int n_rows, int begin, int n_steps) {
    const cell_call *c = work->call;
    const int n = n_steps * n_rows;
    const real *path = row_of(c, base, n_rows, begin), *packed = work->packed;
    for (const group_place *g = c->groups; g < c->groups + c->n_groups; g++)
        for (int p = 0; c->trained[g - c->groups] && p < g->pieces; p++) {
            const piece_place *piece = c->pieces + g->first + p;
            gemm_tn((int)g->n, (int)piece->k, n, m->pre + g->pre, c->ld_pre, path + piece->at, c->ld_row,
                    m->weights + g->weights + piece->column, (ptrdiff_t)g->length);
        }
    for (const back_place *b = c->backs; b < c->backs + c->n_backs; b++) {
        const group_place *g = c->groups + b->group;
        if (b->to_state < 0)
            gemm(n, (int)b->k, (int)g->n, m->pre + g->pre, c->ld_pre, packed, m->in + b->d_at, c->ld_in, (int)b->add);
        packed += packed_size((int)g->n, (int)b->k);
    }
    for (int k = 0; k < c->n_inputs; k++) {
        const input_place *in = c->inputs + k;
        if (in->d_at >= 0)
            for (int i = 0; i < n; i++)
                memcpy(c->d_u[k] + ((size_t)(begin + i / n_rows) * c->n_batch + row + i % n_rows) * in->width,
                       m->in + (size_t)i * c->ld_in + in->d_at, (size_t)in->width * sizeof(real));
    }
}

static void backward_group(const cell_work *work, cell_scratch *m, int row, int n_rows, real *base) {
    const cell_call *c = work->call;
    frame f = {.call = c, .numbers = work->numbers, .n_rows = n_rows, .d_op = m->op, .d_vec = m->vec};
    f.fixed = c->fixed + (size_t)row * c->ld_fixed, f.d_fixed = c->d_fixed + (size_t)row * c->ld_fixed;
    real *d_new = m->state, *d_old = m->other;
    memset(m->state, 0, (size_t)2 * c->block_rows * c->ld_state * sizeof(real)); /* and `other` behind it */
    memset(m->out, 0, (size_t)c->block_rows * c->out_room * sizeof(real));
    for (int k = 0; k < c->n_states; k++)
        for (int r = 0; c->d_last[k] && r < n_rows; r++)
            memcpy(d_new + (size_t)r * c->ld_state + c->states[k].d_at,
                   c->d_last[k] + (size_t)(row + r) * c->states[k].width, (size_t)c->states[k].width * sizeof(real));
    for (int end = (int)c->n_steps, begin; end > 0; end = begin) {
        begin = end > c->block_steps ? end - (int)c->block_steps : 0;
        touch(row_of(c, base, n_rows, begin), (size_t)(end - begin) * n_rows * c->ld_row);
        for (int r = row; c->d_out && c->d_unit == 1 && r < row + n_rows; r++)
            for (int n = begin; n < end; n++) touch(c->d_out + r * c->d_batch + n * c->d_step, (size_t)c->out_width);
        for (int n = end - 1; n >= begin; n--) {
            const size_t at = (size_t)(n - begin) * n_rows;
            f.prev = row_of(c, base, n_rows, n - 1), f.cur = row_of(c, base, n_rows, n), f.next = row_of(c, base, n_rows, n + 1);
            f.d_out = incoming_row(c, m->out, row, n_rows, n, &f.ld_d_out);
            f.d_pre = m->pre + at * c->ld_pre, f.d_in = m->in + at * c->ld_in;
            f.d_new = d_new, f.d_old = d_old;
            const back_place *b = c->backs;
            const real *packed = work->packed;
            for (int level = (int)c->n_levels - 1; level >= 0; level--) {
                c->backward_stage(level, &f);
                for (; b < c->backs + c->n_backs && c->groups[b->group].level == level; b++) {
                    const group_place *g = c->groups + b->group;
                    if (b->to_state >= 0)
                        gemm(n_rows, (int)b->k, (int)g->n, f.d_pre + g->pre, c->ld_pre, packed,
                             (b->to_state ? d_old : m->op) + b->d_at, b->to_state ? c->ld_state : c->ld_op, (int)b->add);
                    packed += packed_size((int)g->n, (int)b->k);
                }
            }
            for (int k = 0; k < c->n_states; k++)
                for (int r = 0; !c->states[k].read && r < n_rows; r++)
                    memset(d_new + (size_t)r * c->ld_state + c->states[k].d_at, 0, (size_t)c->states[k].width * sizeof(real));
            real *swap = d_new;
            d_new = d_old, d_old = swap;
        }
        block_products(work, m, base, row, n_rows, begin, end - begin);
    }
    for (int k = 0; k < c->n_states; k++)
        for (int r = 0; r < n_rows; r++)
            memcpy(c->d_first[k] + (size_t)(row + r) * c->states[k].width, d_new + (size_t)r * c->ld_state + c->states[k].d_at,
                   (size_t)c->states[k].width * sizeof(real));
}

static void backward_share(void *shared, int share, int n_shares) {
    cell_work *work = shared;
    const cell_call *c = work->call;
    const size_t rows = (size_t)c->block_rows, all = rows * c->block_steps;
    cell_scratch m = {.pre = work->shares + share * work->n_share};
    m.in = m.pre + all * c->ld_pre, m.state = m.in + all * c->ld_in, m.other = m.state + rows * c->ld_state;
    m.op = m.other + rows * c->ld_state, m.out = m.op + rows * c->ld_op;
    m.weights = work->gradients + share * work->n_gradients, m.vec = m.weights + c->n_weights;
    for (int g = first_row(work->n_blocks, share, n_shares); g < first_row(work->n_blocks, share + 1, n_shares); g++) {
        const int row = g * (int)c->block_rows, left = (int)c->n_batch - row;
        backward_group(work, &m, row, left < c->block_rows ? left : (int)c->block_rows, c->path + cell_path_length(c, row));
    }
}

void cell_backward(const cell_call *c) {
    cell_work work = planned_work(c, 1);
    for (int i = 0; i < c->n_numbers; i++) work.numbers[i] = (real)c->numbers[i];
    memset(work.gradients, 0, work.n_gradients * work.n_shares * sizeof(real));
    real *to = work.packed;
    for (const back_place *b = c->backs; b < c->backs + c->n_backs; b++) {
        const group_place *g = c->groups + b->group;
        pack(to, c->weights + g->weights + b->column, (int)g->n, (int)b->k, (ptrdiff_t)g->length, 1);
        to += packed_size((int)g->n, (int)b->k);
    }
    in_threads(backward_share, &work, work.n_shares);
    for (int share = 1; share < work.n_shares; share++)
        for (size_t i = 0; i < work.n_gradients; i++) work.gradients[i] += work.gradients[share * work.n_gradients + i];
    memcpy(c->d_weights, work.gradients, (size_t)c->n_weights * sizeof(real));
    memcpy(c->d_vec, work.gradients + c->n_weights, (size_t)c->ld_vec * sizeof(real));
}
