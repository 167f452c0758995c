/* One layer of UnICORNN (thesis 3.6) and its gradients. Axes: T time, B batch, H hidden units.
 *
 *     F_n = tanh(w y_{n-1} + x_n) + alpha y_{n-1},    z_n = z_{n-1} - s F_n,    y_n = y_{n-1} + s z_n
 *
 * Units do not hear each other, so a few rows of the batch, which lie together in [T, B, H], are one flat array of
 * independent oscillators; w and s are repeated for each row. A group of rows is small enough for its states to
 * stay in the first cache, and goes through all steps before the next group starts.
 *
 * The path of y is an output anyway and is kept; z is kept every `every` steps, after the step. Backward goes
 * through time in reverse and finds z on the way: z_{n-1} = z_n + s F_n, with F_n from the kept y_{n-1}. With
 * dy_n, dz_n the gradients of the state after step n, those of what comes later included,
 *
 *     dz_n += s dy_n,   a_n = dz_n s (1 - tanh^2),   dx_n = -a_n,   dy_{n-1} = dy_n - w a_n - s alpha dz_n,
 *     dw = -sum a_n y_{n-1},   ds = sum (dy_n z_n - dz_n F_n).
 *
 * The sums are made per row and per `every` steps first, and over rows in their order: rounding stays small, and
 * the number of threads changes no bit.
 *
 * Where rows do not lie together, or do not fill whole vectors, they are copied from and to such an array.
 */
#include "rows.h"
#include "threads.h"

#define GROUP 1024 /* reals in a group of rows */
#define AHEAD 1024 /* reals of a group's steps between the rows that are fetched and those that are read */

typedef struct { /* [T, B, H] with any strides of time and batch; units lie together; data may be NULL */
    real *data;
    ptrdiff_t step, row;
} series;

typedef struct {
    series x, y, d_y_path, d_x; /* the last two only backward */
    const real *y_first, *z_first, *w, *s;
    real *kept;                       /* [T / every, rounded up; B, H]: z after each block of steps */
    real *d_y, *d_z, *d_w, *d_s;      /* [B, H]; d_y and d_z: of the last state, then of the first one */
    real alpha;
    ptrdiff_t n_steps, n_batch, n_hidden, every;
    int failed;
} job;

typedef struct { /* rows first to first + n_rows as flat arrays, padded with zeros to n reals */
    ptrdiff_t first, n_rows, n_hidden, n;
} group;

static void gather(const group *g, real *flat, const real *data, ptrdiff_t row) {
    for (ptrdiff_t k = 0; k < g->n_rows; k++)
        memcpy(flat + k * g->n_hidden, data + k * row, g->n_hidden * sizeof(real));
}

static void scatter(const group *g, const real *flat, real *data, ptrdiff_t row) {
    for (ptrdiff_t k = 0; k < g->n_rows; k++)
        memcpy(data + k * row, flat + k * g->n_hidden, g->n_hidden * sizeof(real));
}

static real *at(const group *g, const series *s, ptrdiff_t n) {
    return s->data + n * s->step + g->first * s->row;
}

static int lies_flat(const group *g, const series *s) {
    return (s->row == g->n_hidden || g->n_rows == 1) && g->n == g->n_rows * g->n_hidden;
}

/* The rows at step n: where they lie, or copied into `copy`. */
static const real *rows_of(const group *g, const series *s, ptrdiff_t n, real *copy) {
    if (lies_flat(g, s)) return at(g, s, n);
    gather(g, copy, at(g, s, n), s->row);
    return copy;
}

/* Where to write the rows of step n; `written` brings them home. */
static real *room_for(const group *g, const series *s, ptrdiff_t n, real *copy) {
    return lies_flat(g, s) ? at(g, s, n) : copy;
}

static void written(const group *g, const series *s, ptrdiff_t n, const real *copy) {
    if (!lies_flat(g, s)) scatter(g, copy, at(g, s, n), s->row);
}

/* True if what is written goes past the caches: it is larger than these, and lies in whole vectors. */
static int goes_past(const job *j, const group *g, const series *s) {
    const size_t bytes = (size_t)j->n_steps * j->n_batch * j->n_hidden * sizeof(real);
    if (!s->data || bytes <= LARGE || !lies_flat(g, s)) return 0;
    return (size_t)at(g, s, 0) % VEC_BYTES == 0 && s->step % VL == 0;
}

static void forward_group(const job *j, const group *g, real *room) {
    const ptrdiff_t N = g->n, H = g->n_hidden, start = g->first * H;
    const int past = goes_past(j, g, &j->y);
    real *w = room, *s = w + N, *z = s + N, *copy_x = z + N, *copy_y = copy_x + N, *y = copy_y + N;
    const vec alpha = splat(j->alpha);
    gather(g, w, j->w, 0);
    gather(g, s, j->s, 0);
    gather(g, y, j->y_first + start, H);
    gather(g, z, j->z_first + start, H);
    for (ptrdiff_t n = 0; n < j->n_steps; n++) {
        const real *x = rows_of(g, &j->x, n, copy_x);
        real *y_new = room_for(g, &j->y, n, copy_y);
        const real *x_soon = at(g, &j->x, n + 1 < j->n_steps ? n + 1 : n);
        for (ptrdiff_t i = 0; i < N; i += VL) {
            __builtin_prefetch(x_soon + i);
            const vec y_i = load(y + i), s_i = load(s + i);
            const vec z_i = load(z + i) - s_i * (vec_tanh(load(w + i) * y_i + load(x + i)) + alpha * y_i);
            store(z + i, z_i);
            store(y + i, y_i + s_i * z_i);
            store_past(y_new + i, y_i + s_i * z_i, past);
        }
        written(g, &j->y, n, y_new);
        if ((n + 1) % j->every == 0 || n + 1 == j->n_steps)
            scatter(g, z, j->kept + n / j->every * j->n_batch * H + start, H);
    }
}

/* sum += part, part = 0 */
static void add_up(real *sum, real *part, ptrdiff_t n) {
    for (ptrdiff_t i = 0; i < n; i += VL) {
        store(sum + i, load(sum + i) + load(part + i));
        store(part + i, splat(0));
    }
}

static void backward_group(const job *j, const group *g, real *room) {
    const ptrdiff_t N = g->n, H = g->n_hidden, start = g->first * H, ahead = N < AHEAD ? AHEAD / N : 1;
    const int past = goes_past(j, g, &j->d_x);
    real *w = room, *s = w + N, *z = s + N, *copy_x = z + N, *copy_y = copy_x + N, *copy_d = copy_y + N;
    real *d_x_row = copy_d + N, *d_y = d_x_row + N, *d_z = d_y + N;
    real *d_w = d_z + N, *d_s = d_w + N, *sum_w = d_s + N, *sum_s = sum_w + N;
    const vec alpha = splat(j->alpha);
    gather(g, w, j->w, 0);
    gather(g, s, j->s, 0);
    gather(g, d_y, j->d_y + start, H);
    gather(g, d_z, j->d_z + start, H);
    for (ptrdiff_t n = j->n_steps - 1; n >= 0; n--) {
        if ((n + 1) % j->every == 0 || n + 1 == j->n_steps) {
            gather(g, z, j->kept + n / j->every * j->n_batch * H + start, H);
            add_up(sum_w, d_w, N);
            add_up(sum_s, d_s, N);
        }
        const series first = {(real *)j->y_first, 0, H};
        const real *x = rows_of(g, &j->x, n, copy_x);
        const real *y = n ? rows_of(g, &j->y, n - 1, copy_y) : rows_of(g, &first, 0, copy_y);
        const real *d_out = j->d_y_path.data ? rows_of(g, &j->d_y_path, n, copy_d) : NULL;
        real *d_x = j->d_x.data ? room_for(g, &j->d_x, n, d_x_row) : d_x_row;
        /* The processor fetches ahead where addresses rise; these fall. */
        const ptrdiff_t soon = n > ahead ? n - ahead : n;
        const real *x_soon = at(g, &j->x, soon), *y_soon = at(g, &j->y, soon ? soon - 1 : 0);
        const real *d_soon = j->d_y_path.data ? at(g, &j->d_y_path, soon) : y_soon;
        const real *d_x_soon = j->d_x.data && !past ? at(g, &j->d_x, soon) : d_x_row;
        for (ptrdiff_t i = 0; i < N; i += VL) {
            __builtin_prefetch(x_soon + i);
            __builtin_prefetch(y_soon + i);
            __builtin_prefetch(d_soon + i);
            __builtin_prefetch(d_x_soon + i, 1);
            const vec y_i = load(y + i), s_i = load(s + i), w_i = load(w + i), z_i = load(z + i);
            const vec dy_i = d_out ? load(d_y + i) + load(d_out + i) : load(d_y + i);
            const vec dz_i = load(d_z + i) + s_i * dy_i;
            const vec tanh_i = vec_tanh(w_i * y_i + load(x + i)), force = tanh_i + alpha * y_i;
            const vec s_dz = s_i * dz_i, a = s_dz - s_dz * (tanh_i * tanh_i);
            store_past(d_x + i, -a, past);
            store(z + i, z_i + s_i * force);
            store(d_z + i, dz_i);
            store(d_y + i, dy_i - w_i * a - alpha * s_dz);
            store(d_w + i, load(d_w + i) - a * y_i);
            store(d_s + i, load(d_s + i) + dy_i * z_i - dz_i * force);
        }
        if (j->d_x.data) written(g, &j->d_x, n, d_x);
    }
    add_up(sum_w, d_w, N);
    add_up(sum_s, d_s, N);
    scatter(g, sum_w, j->d_w + start, H);
    scatter(g, sum_s, j->d_s + start, H);
    scatter(g, d_y, j->d_y + start, H);
    scatter(g, d_z, j->d_z + start, H);
}

#define ARRAYS 13 /* of a group, at most */

/* About GROUP reals, and such rows as fill whole vectors together, if that takes few. */
static ptrdiff_t rows_at_once(ptrdiff_t n_hidden) {
    const ptrdiff_t n = n_hidden < GROUP ? GROUP / n_hidden : 1;
    ptrdiff_t flat = 1;
    while (flat * n_hidden % VL)
        flat++;
    return flat * n_hidden > 2 * GROUP ? n : n < flat ? flat : n / flat * flat;
}

static void work(void *shared, int share, int n_shares, void (*of_group)(const job *, const group *, real *)) {
    job *j = shared;
    const ptrdiff_t H = j->n_hidden, most_rows = rows_at_once(H);
    const ptrdiff_t end = first_row(j->n_batch, share + 1, n_shares);
    real *room = reals(ARRAYS * whole(most_rows * H));
    if (!room) {
        __atomic_store_n(&j->failed, 1, __ATOMIC_RELAXED);
        return;
    }
    for (ptrdiff_t row = first_row(j->n_batch, share, n_shares); row < end; row += most_rows) {
        group g = {row, end - row < most_rows ? end - row : most_rows, H, 0};
        g.n = whole(g.n_rows * H);
        memset(room, 0, ARRAYS * g.n * sizeof(real)); /* the padding stays zero, or what comes from zeros */
        of_group(j, &g, room);
    }
    streamed();
    free(room);
}

static void forward_share(void *shared, int share, int n_shares) {
    work(shared, share, n_shares, forward_group);
}

static void backward_share(void *shared, int share, int n_shares) {
    work(shared, share, n_shares, backward_group);
}

/* 0, or 1 if there was no memory. Strides count reals. */
int forward(const real *x, ptrdiff_t x_step, ptrdiff_t x_row, const real *y_first, const real *z_first,
            const real *w, const real *s, double alpha, real *y, real *kept, ptrdiff_t every, ptrdiff_t n_steps,
            ptrdiff_t n_batch, ptrdiff_t n_hidden, int n_threads) {
    job j = {.x = {(real *)x, x_step, x_row}, .y = {y, n_batch * n_hidden, n_hidden},
             .y_first = y_first, .z_first = z_first, .w = w, .s = s, .kept = kept, .alpha = (real)alpha,
             .n_steps = n_steps, .n_batch = n_batch, .n_hidden = n_hidden, .every = every};
    in_threads(forward_share, &j, n_threads);
    return j.failed;
}

/* d_y_path may be NULL, for zero, and d_x, which is then not written. */
int backward(const real *x, ptrdiff_t x_step, ptrdiff_t x_row, const real *y_first, const real *w, const real *s,
             double alpha, const real *y, const real *kept, ptrdiff_t every, const real *d_y_path,
             ptrdiff_t d_step, ptrdiff_t d_row, real *d_x, real *d_y, real *d_z, real *d_w, real *d_s,
             ptrdiff_t n_steps, ptrdiff_t n_batch, ptrdiff_t n_hidden, int n_threads) {
    job j = {.x = {(real *)x, x_step, x_row}, .y = {(real *)y, n_batch * n_hidden, n_hidden},
             .d_y_path = {(real *)d_y_path, d_step, d_row}, .d_x = {d_x, n_batch * n_hidden, n_hidden},
             .y_first = y_first, .w = w, .s = s, .kept = (real *)kept, .d_y = d_y, .d_z = d_z, .d_w = d_w,
             .d_s = d_s, .alpha = (real)alpha, .n_steps = n_steps, .n_batch = n_batch, .n_hidden = n_hidden,
             .every = every};
    in_threads(backward_share, &j, n_threads);
    return j.failed;
}
