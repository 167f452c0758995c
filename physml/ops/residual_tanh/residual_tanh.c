/* h_n = K h_{n-1} + g f_n,  f_n = tanh(W h_{n-1} + d_n).  Axes: T time, B batch, H units.
 *
 * K is a matrix (H, H) or a number. P is H rounded up to whole vectors; what fills a row up is 0 and stays 0.
 * A matrix is packed beside W, so that a step is one product, h_{n-1} [W^T | K^T].
 *
 * A thread owns rows of the batch. It takes them in tiles, few enough for a tile's state to stay in cache,
 * and runs a tile through all steps. Saved are the tanh f and the path, which is the output. A step back, with
 * e for the gradient of h_n, is
 *
 * e += gradient of the output,  p_n = g (1 - f_n^2) e,  e = p_n W + e K
 *
 * where p_n is the gradient of d_n. After a block of steps the rows [p | e] and h_{n-1}, still in cache, give
 * the gradients of W and of a matrix K; those of g and of a number K are sums of f_n e and h_{n-1} e. All are
 * summed per thread and then in the order of the threads: as many threads, the same bits.
 */

#include "gemm.h"
#include "rows.h"
#include "threads.h"

typedef struct {
    length n_steps, n_batch, n_hidden; /* T, B, H */
    length n_block, n_tile;            /* steps in a block, rows in a tile */
    length n_padded, n_columns;        /* P; 2P if K is a matrix, else P */
    length ld, ld_columns;             /* from row to row, of P and of n_columns numbers */
    int matrix;
    real keep, gain;
} Shape;

static Shape shape_of(const long long sizes[6], const double numbers[2]) {
    Shape s = {.n_steps = sizes[0], .n_batch = sizes[1], .n_hidden = sizes[2], .n_block = sizes[3],
               .n_tile = sizes[4], .matrix = sizes[5] != 0};
    s.keep = numbers[0], s.gain = numbers[1];
    s.n_padded = whole(s.n_hidden);
    s.n_columns = s.matrix ? 2 * s.n_padded : s.n_padded;
    s.ld = row_length(s.n_padded);
    s.ld_columns = row_length(s.n_columns);
    return s;
}

/* W above K, (n_columns, H). */
static void join(real *rows, const Shape *s, const real *W, const real *K) {
    const length H = s->n_hidden;
    clear(rows, s->n_columns * H);
    copy(rows, W, H * H);
    if (s->matrix) copy(rows + s->n_padded * H, K, H * H);
}

/* ---- Forward ---- */

typedef struct {
    Shape s;
    const real *drive, *h;  /* (T, B, H), (B, H) */
    const real *weights;    /* (H, n_columns), packed */
    real *path;             /* (T, B, H) */
    real *tanhs;            /* (T, B, P); NULL: nothing is saved */
    real *scratch;          /* per thread */
} Forward;

static length forward_scratch(const Shape *s) { return lines(s->n_tile * (s->ld + s->ld_columns)); }

static void forward_step(const Forward *w, length n, length row, length rows, real *states, real *products) {
    const Shape *s = &w->s;
    const length P = s->n_padded, H = s->n_hidden, at = n * s->n_batch + row;
    const length ahead = n + 1 < s->n_steps ? s->n_batch : 0; /* rows to the same one, a step later */
    gemm(rows, s->n_columns, H, states, s->ld, w->weights, products, s->ld_columns, 0);
    for (length i = 0; i < rows; i++) {
        real *state = states + i * s->ld, *product = products + i * s->ld_columns;
        real *saved = w->tanhs ? w->tanhs + (at + i) * P : product, *output = w->path + (at + i) * H;
        const real *push = w->drive + (at + i) * H;
        expect(push + ahead * H, H);
        expect_new(output + ahead * H, H);
        if (w->tanhs) expect_new(saved + ahead * P, P);
        for (length j = 0; j < P; j += VL) {
            const vec f = vec_tanh(load(product + j) + load_end(push, j, H));
            const vec kept = s->matrix ? load(product + P + j) : s->keep * load(state + j);
            const vec h = kept + s->gain * f;
            store(saved + j, f);
            store(state + j, h);
            store_end(output, j, H, h);
        }
    }
}

static void forward_rows(void *shared, int share, int n_shares) {
    const Forward *w = shared;
    const Shape *s = &w->s;
    const length H = s->n_hidden, end = first_row(s->n_batch, share + 1, n_shares);
    real *states = w->scratch + share * forward_scratch(s), *products = states + s->n_tile * s->ld;
    for (length row = first_row(s->n_batch, share, n_shares), rows; row < end; row += rows) {
        rows = least(s->n_tile, end - row);
        clear(states, rows * s->ld);
        for (length i = 0; i < rows; i++) copy(states + i * s->ld, w->h + (row + i) * H, H);
        for (length n = 0; n < s->n_steps; n++) forward_step(w, n, row, rows, states, products);
    }
}

/* sizes: T, B, H, steps in a block, rows in a tile, whether K is a matrix. numbers: K if it is none, g. room: as
   residual_tanh_room says. */
void residual_tanh_forward(int n_threads, const long long sizes[6], const double numbers[2], const real *drive,
                           const real *h, const real *W, const real *K, real *path, real *tanhs, real *room){
    const Shape s = shape_of(sizes, numbers);
    real *weights = room + lines(s.n_columns * s.n_hidden);
    join(room, &s, W, K);
    pack(weights, room, s.n_hidden, s.n_columns, 1, s.n_hidden);
    Forward w = {.s = s, .drive = drive, .h = h, .weights = weights, .path = path, .tanhs = tanhs,
                 .scratch = weights + lines(packed_size(s.n_hidden, s.n_columns))};
    in_threads(forward_rows, &w, n_threads);
}

/* ---- Backward ---- */

typedef struct {
    Shape s;
    const real *h, *path, *tanhs;
    const real *weights;        /* W above K, (n_columns, H), packed */
    const real *d_path;         /* (T, B, H) with its strides */
    length d_step, d_row;
    real *d_drive, *d_h;        /* (T, B, H) or NULL; (B, H) */
    length first, beyond;       /* which rows of d_weights are wanted */
    real *d_weights;            /* W's above K's, (n_columns, ld) per thread, or NULL */
    double *d_numbers;          /* K's, if it is one, and g's, per thread */
    real *scratch;              /* per thread */
} Backward;

static length backward_scratch(const Shape *s) {
    return lines(s->n_tile * (s->n_block * (s->ld + s->ld_columns) + s->ld));
}

/* One step back: from `d_states`, the gradient of h_n, to that of h_{n-1}; [p | e] and h_{n-1} are kept. */
static void backward_step(const Backward *w, length n, length row, length rows, real *d_states, real *pushes,
                          real *befores, double *d_numbers) {
    const Shape *s = &w->s;
    const length P = s->n_padded, H = s->n_hidden, at = n * s->n_batch + row, behind = n > 0 ? s->n_batch : 0;
    for (length i = 0; i < rows; i++) {
        real *d_state = d_states + i * s->ld, *push = pushes + i * s->ld_columns;
        real *before = befores + i * s->ld;
        const real *tanhs = w->tanhs + (at + i) * P;
        const real *d_output = w->d_path + n * w->d_step + (row + i) * w->d_row;
        const real *h = n > 0 ? w->path + (at - s->n_batch + i) * H : w->h + (row + i) * H;
        vec of_keep = {0}, of_gain = {0};
        expect(tanhs - behind * P, P);
        if (n > 0) expect(d_output - w->d_step, H);
        if (n > 1) expect(h - behind * H, H);
        for (length j = 0; j < P; j += VL) {
            const vec f = load(tanhs + j), old = load_end(h, j, H);
            const vec e = load(d_state + j) + load_end(d_output, j, H), p = s->gain * (1 - f * f) * e;
            of_keep += old * e;
            of_gain += f * e;
            store(before + j, old);
            store(push + j, p);
            if (s->matrix) store(push + P + j, e);
            store(d_state + j, s->matrix ? (vec){0} : s->keep * e);
            if (w->d_drive) store_end(w->d_drive + (at + i) * H, j, H, p);
        }
        d_numbers[0] += sum(of_keep);
        d_numbers[1] += sum(of_gain);
    }
    gemm(rows, H, s->n_columns, pushes, s->ld_columns, w->weights, d_states, s->ld, 1);
}

static void backward_tile(const Backward *w, length row, length rows, real *d_weights, double *d_numbers,
                          real *scratch) {
    const Shape *s = &w->s;
    const length H = s->n_hidden;
    real *d_states = scratch, *pushes = d_states + s->n_tile * s->ld;
    real *befores = pushes + s->n_tile * s->n_block * s->ld_columns;
    clear(d_states, rows * s->ld);
    for (length end = s->n_steps, n; end > 0; end -= n) {
        n = least(s->n_block, end);
        for (length k = n - 1; k >= 0; k--)
            backward_step(w, end - n + k, row, rows, d_states, pushes + k * rows * s->ld_columns,
                          befores + k * rows * s->ld, d_numbers);
        if (d_weights)
            gemm_tn(w->beyond - w->first, s->n_padded, n * rows, pushes + w->first, s->ld_columns, befores,
                    s->ld, d_weights + w->first * s->ld, s->ld);
    }
    for (length i = 0; i < rows; i++) copy(w->d_h + (row + i) * H, d_states + i * s->ld, H);
}

static void backward_rows(void *shared, int share, int n_shares) {
    const Backward *w = shared;
    const Shape *s = &w->s;
    const length end = first_row(s->n_batch, share + 1, n_shares);
    real *d_weights = w->d_weights ? w->d_weights + share * s->n_columns * s->ld : NULL;
    double d_numbers[2] = {0};
    for (length row = first_row(s->n_batch, share, n_shares), rows; row < end; row += rows) {
        rows = least(s->n_tile, end - row);
        backward_tile(w, row, rows, d_weights, d_numbers, w->scratch + share * backward_scratch(s));
    }
    memcpy(w->d_numbers + 2 * share, d_numbers, sizeof d_numbers);
}

static void give_matrix(real *to, const real *from, const Shape *s) {
    for (length i = 0; to && i < s->n_hidden; i++) copy(to + i * s->n_hidden, from + i * s->ld, s->n_hidden);
}

/* As residual_tanh_forward. strides: of d_path, step and row. What may be NULL: d_drive, d_W and d_K where
   they are not wanted. d_numbers: of K, if it is a number, and of g. */
void residual_tanh_backward(int n_threads, const long long sizes[6], const double numbers[2], const real *h,
                            const real *W, const real *K, const real *path, const real *tanhs,
                            const real *d_path, const long long strides[2], real *d_drive, real *d_h,
                            real *d_W, real *d_K, double d_numbers[2], real *room){
    const Shape s = shape_of(sizes, numbers);
    const length P = s.n_padded, n_weights = d_W || d_K ? s.n_columns * s.ld : 0;
    real *weights = room + lines(s.n_columns * s.n_hidden);
    real *d_weights = weights + lines(packed_size(s.n_columns, s.n_hidden));
    double sums[2 * MOST_THREADS];
    join(room, &s, W, K);
    pack(weights, room, s.n_columns, s.n_hidden, s.n_hidden, 1);
    clear(d_weights, n_threads * n_weights);
    Backward w = {.s = s, .h = h, .path = path, .tanhs = tanhs, .weights = weights, .d_path = d_path,
                  .d_step = strides[0], .d_row = strides[1], .d_drive = d_drive, .d_h = d_h,
                  .first = d_W ? 0 : P, .beyond = d_K ? 2 * P : P, .d_weights = n_weights ? d_weights : NULL,
                  .d_numbers = sums, .scratch = d_weights + lines(n_threads * n_weights)};
    in_threads(backward_rows, &w, n_threads);
    sum_shares(d_weights, n_weights, n_threads);
    give_matrix(d_W, d_weights, &s);
    give_matrix(d_K, d_weights + P * s.ld, &s);
    d_numbers[0] = d_numbers[1] = 0;
    for (int share = 0; share < n_threads; share++)
        for (int i = 0; i < 2; i++) d_numbers[i] += sums[2 * share + i];
}

/* How many reals of scratch memory a pass needs at most. */
size_t residual_tanh_room(int n_threads, const long long sizes[6], int backward) {
    const Shape s = shape_of(sizes, (double[2]){0});
    const size_t plain = lines(s.n_columns * s.n_hidden);
    if (!backward) return plain + lines(packed_size(s.n_hidden, s.n_columns)) + n_threads * forward_scratch(&s);
    return plain + lines(packed_size(s.n_columns, s.n_hidden)) + lines(n_threads * s.n_columns * s.ld) +
           n_threads * backward_scratch(&s);
}

/* The size of a vector: P is a multiple of it. */
int residual_tanh_vector(void) { return VL; }
