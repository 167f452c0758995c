/* coRNN forward and backward. Axes: B batch, T time, D features, H hidden units.
 *
 * f_n = tanh(W y_{n-1} + Wcal z_{n-1} + V u_n + b)
 * z_n = a z_{n-1} + c f_n - d y_{n-1},  y_n = y_{n-1} + dt z_n
 *
 * A row of state is kept as the operand [y_{n-1} | z_{n-1} | u_n | 1] of K = 2P + D + 1 numbers, where P is H
 * rounded up to whole vectors. So a step is one product with packed weights (K, P), input and bias included,
 * and the gradients of all weights are one product of operands and gradients of pre-activations. What fills P
 * up is 0 and stays 0.
 *
 * A thread owns rows of the batch. It takes them in tiles, few enough for a tile's state to stay in cache,
 * and runs a tile through all steps. Saved are the forces f and, once in a block of steps, the states:
 * backward finds the others in a block by the arithmetic of the forward pass. A step back, with gy and gz for
 * the gradients of y_n and z_n, is
 *
 * gz += dt gy,  p_n = c (1 - f_n^2) gz,  [gy | gz] = [gy - d gz | a gz] + p_n [W | Wcal]
 *
 * and p_n V, the gradient of u_n, comes out of the same product. After a block its operands and its p, still
 * in cache, give the weights' gradients. These are summed per thread and then in the order of the threads: as
 * many threads, the same bits.
 */

#include "gemm.h"
#include "rows.h"
#include "threads.h"

typedef struct {
    length n_batch, n_steps, d_in, n_hidden; /* B, T, D, H */
    length n_block, n_tile;                  /* steps in a block, rows in a tile */
    length n_padded, n_operand;              /* P, K */
    length ld_operand, ld_force, ld_state;   /* from row to row of operands; of f and p; of [gy | gz | gu] */
    real dt, a, c, d;
} Shape;

static Shape shape_of(const long long sizes[6], const double constants[4]) {
    Shape s = {.n_batch = sizes[0], .n_steps = sizes[1], .d_in = sizes[2], .n_hidden = sizes[3],
               .n_block = sizes[4], .n_tile = sizes[5]};
    s.n_padded = whole(s.n_hidden);
    s.n_operand = 2 * s.n_padded + s.d_in + 1;
    s.ld_operand = row_length(s.n_operand);
    s.ld_force = row_length(s.n_padded);
    s.ld_state = row_length(2 * s.n_padded + s.d_in);
    s.dt = constants[0], s.a = constants[1], s.c = constants[2], s.d = constants[3];
    return s;
}

/* The state after a step from the one before. Both passes call this: they must agree to the last digit. */
static inline void advance(const Shape *s, vec f, vec *y, vec *z) {
    *z = s->a * *z + s->c * f - s->d * *y;
    *y += s->dt * *z;
}

/* [W | Wcal | V | b], (P, K): row i goes to f_i. */
static void join(real *rows, const Shape *s, const real *W, const real *Wcal, const real *V, const real *b) {
    const length P = s->n_padded, H = s->n_hidden, D = s->d_in, K = s->n_operand;
    clear(rows, P * K);
    for (length i = 0; i < H; i++) {
        real *row = rows + i * K;
        copy(row, W + i * H, H);
        copy(row + P, Wcal + i * H, H);
        copy(row + 2 * P, V + i * D, D);
        row[K - 1] = b[i];
    }
}

/* ---- Forward ---- */

typedef struct {
    Shape s;
    const real *u, *y, *z;  /* (B, T, D), with its strides; (B, H) */
    length u_row, u_step;
    const real *weights;    /* (K, P), packed */
    real *outputs;          /* (T, B, H) */
    real *y_last, *z_last;  /* (B, H) */
    real *forces, *states;  /* (T, B, P); [y | z] before each block, (blocks, B, 2P). NULL: not saved */
    int large;              /* outputs and forces go past the caches */
    real *scratch;          /* per thread */
} Forward;

/* True if a pass with forces writes more than the caches hold, in whole vectors. */
static int is_large(const Shape *s, const real *outputs, const real *forces) {
    const size_t bytes = (size_t)s->n_steps * s->n_batch * 2 * s->n_padded * sizeof(real);
    const int aligned = ((size_t)outputs | (size_t)forces) % VEC_BYTES == 0 && s->n_hidden == s->n_padded;
    return forces && aligned && bytes > LARGE;
}

static length forward_scratch(const Shape *s) { return lines(s->n_tile * (s->ld_operand + s->ld_force)); }

static void forward_step(const Forward *w, length n, length row, length rows, real *operands, real *forces) {
    const Shape *s = &w->s;
    const length P = s->n_padded, H = s->n_hidden, at = n * s->n_batch + row;
    const length next = n + 1 < s->n_steps; /* 0: nothing comes, so what is here is fetched once more */
    for (length i = 0; i < rows; i++) {
        real *operand = operands + i * s->ld_operand;
        const real *u = w->u + (row + i) * w->u_row + n * w->u_step;
        copy(operand + 2 * P, u, s->d_in);
        expect(u + next * w->u_step, s->d_in);
        if (w->states && n % s->n_block == 0)
            copy(w->states + (n / s->n_block * s->n_batch + row + i) * 2 * P, operand, 2 * P);
    }
    gemm(rows, P, s->n_operand, operands, s->ld_operand, w->weights, forces, s->ld_force, 0);
    for (length i = 0; i < rows; i++) {
        real *operand = operands + i * s->ld_operand, *force = forces + i * s->ld_force;
        real *saved = w->forces ? w->forces + (at + i) * P : force;
        real *output = w->outputs + (at + i) * H;
        if (w->forces && !w->large) expect_new(saved + next * s->n_batch * P, P);
        if (!w->large) expect_new(output + next * s->n_batch * H, H);
        for (length h = 0; h < P; h += VL) {
            const vec f = vec_tanh(load(force + h));
            vec y = load(operand + h), z = load(operand + P + h);
            advance(s, f, &y, &z);
            store(operand + h, y);
            store(operand + P + h, z);
            store_past(saved + h, f, w->large);
            if (h + VL <= H) store_past(output + h, y, w->large);
            else store_end(output, h, H, y);
        }
    }
}

static void forward_rows(void *shared, int share, int n_shares) {
    const Forward *w = shared;
    const Shape *s = &w->s;
    const length P = s->n_padded, H = s->n_hidden, end = first_row(s->n_batch, share + 1, n_shares);
    real *operands = w->scratch + share * forward_scratch(s), *forces = operands + s->n_tile * s->ld_operand;
    for (length row = first_row(s->n_batch, share, n_shares), rows; row < end; row += rows) {
        rows = least(s->n_tile, end - row);
        clear(operands, rows * s->ld_operand);
        for (length i = 0; i < rows; i++) {
            real *operand = operands + i * s->ld_operand;
            copy(operand, w->y + (row + i) * H, H);
            copy(operand + P, w->z + (row + i) * H, H);
            operand[s->n_operand - 1] = 1;
        }
        for (length n = 0; n < s->n_steps; n++) forward_step(w, n, row, rows, operands, forces);
        for (length i = 0; i < rows; i++) {
            copy(w->y_last + (row + i) * H, operands + i * s->ld_operand, H);
            copy(w->z_last + (row + i) * H, operands + i * s->ld_operand + P, H);
        }
    }
    streamed();
}

/* sizes: B, T, D, H, steps in a block, rows in a tile. constants: dt, a, c, d. strides of u: row, step. room: as
   cornn_room says. */
void cornn_forward(int n_threads, const long long sizes[6], const double constants[4], const real *u,
                   const long long strides[2], const real *y, const real *z, const real *W, const real *Wcal,
                   const real *V, const real *b, real *outputs, real *y_last, real *z_last, real *forces,
                   real *states, real *room){
    const Shape s = shape_of(sizes, constants);
    real *weights = room + lines(s.n_padded * s.n_operand);
    join(room, &s, W, Wcal, V, b);
    pack(weights, room, s.n_operand, s.n_padded, 1, s.n_operand);
    Forward w = {.s = s, .u = u, .y = y, .z = z, .u_row = strides[0], .u_step = strides[1], .weights = weights,
                 .outputs = outputs, .y_last = y_last, .z_last = z_last, .forces = forces, .states = states,
                 .large = is_large(&s, outputs, forces),
                 .scratch = weights + lines(packed_size(s.n_operand, s.n_padded))};
    in_threads(forward_rows, &w, n_threads);
}

/* ---- Backward ---- */

typedef struct {
    Shape s;
    const real *u, *forces, *states;
    length u_row, u_step;
    const real *weights;             /* [W | Wcal | V], V only if d_u is wanted: (P, n_columns), packed */
    length n_columns;
    const real *d_outputs;           /* (B, T, H) with its strides, or NULL */
    length d_row, d_step;
    const real *d_y_last, *d_z_last; /* (B, H) or NULL */
    real *d_u, *d_y, *d_z;           /* (T, B, D) or NULL; (B, H) */
    length first, beyond;            /* which rows of d_weights are wanted */
    real *d_weights;                 /* of [W^T; Wcal^T; V^T; b], (K, ld_force) per thread, or NULL */
    real *scratch;                   /* per thread */
} Backward;

static length backward_scratch(const Shape *s) {
    return lines(s->n_tile * (s->n_block * (s->ld_operand + s->ld_force) + s->ld_state));
}

/* The operands of a block, step after step, found again from the state before it. */
static void find_operands(const Backward *w, length begin, length steps, length row, length rows,
                          real *operands) {
    const Shape *s = &w->s;
    const length P = s->n_padded, ld = s->ld_operand;
    for (length i = 0; i < rows; i++) {
        copy(operands + i * ld, w->states + (begin / s->n_block * s->n_batch + row + i) * 2 * P, 2 * P);
        for (length k = 0; k < steps; k++) /* of one row all steps, for they lie in memory so */
            copy(operands + (k * rows + i) * ld + 2 * P, w->u + (row + i) * w->u_row + (begin + k) * w->u_step,
                 s->d_in);
    }
    for (length k = 0; k < steps; k++) {
        for (length i = 0; i < rows; i++) {
            real *now = operands + (k * rows + i) * ld, *next = now + rows * ld;
            const real *force = w->forces + ((begin + k) * s->n_batch + row + i) * P;
            now[s->n_operand - 1] = 1;
            for (length h = 0; h < P && k + 1 < steps; h += VL) {
                vec y = load(now + h), z = load(now + P + h);
                advance(s, load(force + h), &y, &z);
                store(next + h, y);
                store(next + P + h, z);
            }
        }
    }
}

/* One step back: the gradients of the pre-activations, p, and `d_states`, (rows) of [gy | gz | gu]. */
static void backward_step(const Backward *w, length n, length row, length rows, real *d_states, real *p) {
    const Shape *s = &w->s;
    const length P = s->n_padded, H = s->n_hidden, at = n * s->n_batch + row;
    const length next = n > 0;
    for (length i = 0; i < rows; i++) {
        real *d_state = d_states + i * s->ld_state, *push = p + i * s->ld_force;
        const real *force = w->forces + (at + i) * P;
        const real *d_output = w->d_outputs ? w->d_outputs + (row + i) * w->d_row + n * w->d_step : NULL;
        expect(force - next * s->n_batch * P, P);
        if (d_output) expect(d_output - next * w->d_step, H);
        expect(w->u + (row + i) * w->u_row + n * w->u_step, s->d_in); /* for find_operands */
        for (length h = 0; h < P; h += VL) {
            const vec f = load(force + h);
            vec gy = load(d_state + h), gz = load(d_state + P + h);
            if (d_output) gy += load_end(d_output, h, H);
            gz += s->dt * gy;
            store(push + h, s->c * (1 - f * f) * gz);
            store(d_state + h, gy - s->d * gz);
            store(d_state + P + h, s->a * gz);
        }
        if (w->d_u) clear(d_state + 2 * P, s->d_in);
    }
    gemm(rows, w->n_columns, P, p, s->ld_force, w->weights, d_states, s->ld_state, 1);
    if (w->d_u)
        for (length i = 0; i < rows; i++)
            copy(w->d_u + (at + i) * s->d_in, d_states + i * s->ld_state + 2 * P, s->d_in);
}

static void backward_tile(const Backward *w, length row, length rows, real *d_weights, real *scratch) {
    const Shape *s = &w->s;
    const length P = s->n_padded, H = s->n_hidden;
    real *d_states = scratch, *p = d_states + s->n_tile * s->ld_state;
    real *operands = p + s->n_tile * s->n_block * s->ld_force;
    clear(d_states, rows * s->ld_state);
    for (length i = 0; i < rows; i++) {
        if (w->d_y_last) copy(d_states + i * s->ld_state, w->d_y_last + (row + i) * H, H);
        if (w->d_z_last) copy(d_states + i * s->ld_state + P, w->d_z_last + (row + i) * H, H);
    }
    for (length begin = (s->n_steps - 1) / s->n_block * s->n_block; begin >= 0; begin -= s->n_block) {
        const length steps = least(s->n_block, s->n_steps - begin);
        for (length k = steps - 1; k >= 0; k--)
            backward_step(w, begin + k, row, rows, d_states, p + k * rows * s->ld_force);
        if (d_weights) {
            find_operands(w, begin, steps, row, rows, operands);
            gemm_tn(w->beyond - w->first, P, steps * rows, operands + w->first, s->ld_operand, p, s->ld_force,
                    d_weights + w->first * s->ld_force, s->ld_force);
        }
    }
    for (length i = 0; i < rows; i++) {
        copy(w->d_y + (row + i) * H, d_states + i * s->ld_state, H);
        copy(w->d_z + (row + i) * H, d_states + i * s->ld_state + P, H);
    }
}

static void backward_rows(void *shared, int share, int n_shares) {
    const Backward *w = shared;
    const Shape *s = &w->s;
    const length end = first_row(s->n_batch, share + 1, n_shares);
    real *d_weights = w->d_weights ? w->d_weights + share * s->n_operand * s->ld_force : NULL;
    for (length row = first_row(s->n_batch, share, n_shares), rows; row < end; row += rows) {
        rows = least(s->n_tile, end - row);
        backward_tile(w, row, rows, d_weights, w->scratch + share * backward_scratch(s));
    }
}

/* to (H, n), or NULL, from n rows of its transpose. */
static void transpose(real *to, const real *from, length ld, length n_hidden, length n) {
    for (length i = 0; to && i < n_hidden; i++)
        for (length j = 0; j < n; j++) to[i * n + j] = from[j * ld + i];
}

/* As cornn_forward. strides: of u, row and step, and of d_outputs. What may be NULL: d_outputs, d_y_last and
   d_z_last where no gradient comes in; d_u and d_W to d_b where none is wanted. */
void cornn_backward(int n_threads, const long long sizes[6], const double constants[4], const real *u,
                    const long long strides[4], const real *W, const real *Wcal, const real *V, const real *b,
                    const real *forces, const real *states, const real *d_outputs, const real *d_y_last,
                    const real *d_z_last, real *d_u, real *d_y, real *d_z, real *d_W, real *d_Wcal, real *d_V,
                    real *d_b, real *room){
    const Shape s = shape_of(sizes, constants);
    const length P = s.n_padded, K = s.n_operand, ld = s.ld_force;
    Backward w = {.s = s, .u = u, .forces = forces, .states = states, .u_row = strides[0],
                  .u_step = strides[1], .n_columns = 2 * P + (d_u ? s.d_in : 0), .d_outputs = d_outputs,
                  .d_row = strides[2], .d_step = strides[3], .d_y_last = d_y_last, .d_z_last = d_z_last,
                  .d_u = d_u, .d_y = d_y, .d_z = d_z};
    w.first = d_W ? 0 : d_Wcal ? P : 2 * P;
    w.beyond = d_V || d_b ? K : d_Wcal ? 2 * P : d_W ? P : 0;
    const int wanted = w.first < w.beyond;
    real *weights = room + lines(P * K), *d_weights = weights + lines(packed_size(P, w.n_columns));
    join(room, &s, W, Wcal, V, b);
    pack(weights, room, P, w.n_columns, K, 1);
    w.weights = weights, w.scratch = d_weights + lines(n_threads * K * ld), w.d_weights = wanted ? d_weights : NULL;
    if (wanted) clear(d_weights, n_threads * K * ld);
    in_threads(backward_rows, &w, n_threads);
    if (wanted) {
        sum_shares(d_weights, K * ld, n_threads);
        transpose(d_W, d_weights, ld, s.n_hidden, s.n_hidden);
        transpose(d_Wcal, d_weights + P * ld, ld, s.n_hidden, s.n_hidden);
        transpose(d_V, d_weights + 2 * P * ld, ld, s.n_hidden, s.d_in);
        transpose(d_b, d_weights + (K - 1) * ld, ld, s.n_hidden, 1);
    }
}

/* How many reals of scratch memory a pass needs at most. */
size_t cornn_room(int n_threads, const long long sizes[6], int backward) {
    const Shape s = shape_of(sizes, (double[4]){0});
    const length P = s.n_padded, K = s.n_operand;
    if (!backward) return lines(P * K) + lines(packed_size(K, P)) + n_threads * forward_scratch(&s);
    return lines(P * K) + lines(packed_size(P, 2 * P + s.d_in)) + lines(n_threads * K * s.ld_force) +
           n_threads * backward_scratch(&s);
}

/* The size of a vector: P is a multiple of it. */
int cornn_vector(void) { return VL; }
