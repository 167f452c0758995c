/* out_ih = sum over entries e of row i of v_e W_hd, d the column of e.  Axes: N rows, D columns, H channels.
 *
 * gradient of W_hd = sum over entries e of column d of v_e g_ih, i the row of e, g the gradient of out
 *
 * W has a row for each channel, and the sums want the channels of one column beside each other. So a thread takes
 * a block of channels after the other, turns it round in room that stays in the cache of a core, and writes what it
 * has summed. It sums in the order in which entries are stored: the number of threads changes no bit.
 */

#include "rows.h"
#include "threads.h"

#define BLOCK 64 /* channels, whole vectors */
#define TURN 16  /* columns that are turned round together */

typedef struct {
    length n_rows, n_columns, n_channels;
    const long long *start, *other, *order; /* (N + 1), (E): entries by row; by column: (D + 1), (E), (E) */
    const real *value;                      /* (E) */
    const real *weight, *grad;              /* (H, D), (N, H) */
    real *to;                               /* (N, H) or (H, D) */
    real *room;                             /* (threads, D or N, BLOCK) */
} Work;

/* Row d of `room` has columns d of n channels from h on. */
static void turn(const Work *w, real *room, length h, length n) {
    const length D = w->n_columns;
    for (length first = 0; first < D; first += TURN) {
        const length end = least(first + TURN, D);
        for (length k = 0; k < n; k++) {
            const real *row = w->weight + (h + k) * D;
            for (length d = first; d < end; d++) room[d * BLOCK + k] = row[d];
        }
    }
}

/* Rows of n numbers, and zeros up to whole vectors. */
static void gather(const Work *w, real *room, length h, length n) {
    for (length i = 0; i < w->n_rows; i++) {
        copy(room + i * BLOCK, w->grad + i * w->n_channels + h, n);
        clear(room + i * BLOCK + n, (length)whole(n) - n);
    }
}

/* The sum of rows of `room` that entries from `first` on name, with their values. */
INLINE void total_of(const Work *w, const real *room, long long first, long long end, vec *total, length n) {
    for (length k = 0; k < n; k += VL) total[k / VL] = (vec){0};
    for (long long e = first; e < end; e++) {
        const real *row = room + w->other[e] * BLOCK, value = w->value[w->order ? w->order[e] : e];
        for (length k = 0; k < n; k += VL) total[k / VL] += value * load(row + k);
    }
}

/* Loops over channels are unrolled where their number is known to the compiler. */
static void total_of_some(const Work *w, const real *room, long long first, long long end, vec *total, length n) {
    if (n == BLOCK) total_of(w, room, first, end, total, BLOCK);
    else total_of(w, room, first, end, total, n);
}

static void forward(void *shared, int share, int n_shares) {
    const Work *w = shared;
    const length H = w->n_channels, n_blocks = (H + BLOCK - 1) / BLOCK;
    real *room = w->room + share * w->n_columns * BLOCK;
    for (length b = share; b < n_blocks; b += n_shares) {
        const length h = b * BLOCK, n = least(BLOCK, H - h);
        turn(w, room, h, n);
        for (length i = 0; i < w->n_rows; i++) {
            vec total[BLOCK / VL];
            total_of_some(w, room, w->start[i], w->start[i + 1], total, n);
            for (length k = 0; k < n; k += VL) store_end(w->to + i * H + h, k, n, total[k / VL]);
        }
    }
}

static void backward(void *shared, int share, int n_shares) {
    const Work *w = shared;
    const length H = w->n_channels, D = w->n_columns, n_blocks = (H + BLOCK - 1) / BLOCK;
    real *room = w->room + share * w->n_rows * BLOCK;
    for (length b = share; b < n_blocks; b += n_shares) {
        const length h = b * BLOCK, n = least(BLOCK, H - h);
        gather(w, room, h, n);
        for (length first = 0; first < D; first += TURN) {
            vec total[TURN][BLOCK / VL];
            const length some = least(TURN, D - first);
            for (length d = 0; d < some; d++)
                total_of_some(w, room, w->start[first + d], w->start[first + d + 1], total[d], n);
            for (length k = 0; k < n; k++)
                for (length d = 0; d < some; d++)
                    w->to[(h + k) * D + first + d] = total[d][k / VL][k % VL];
        }
    }
}

static int run(work_fn *work, Work *w, length n_rows, int n_threads) {
    w->room = calloc((size_t)n_threads * (size_t)n_rows * BLOCK, sizeof(real));
    if (!w->room) return 1;
    in_threads(work, w, n_threads);
    free(w->room);
    return 0;
}

/* sizes: N, D, H. start, column: of the entries by row. */
int rows_linear_forward(int n_threads, const long long sizes[3], const long long *start, const long long *column,
                        const real *value, const real *weight, real *out) {
    Work w = {.n_rows = sizes[0], .n_columns = sizes[1], .n_channels = sizes[2], .start = start, .other = column,
              .value = value, .weight = weight, .to = out};
    return run(forward, &w, sizes[1], n_threads);
}

/* start, row, order: of the entries by column, and where each stands by row. */
int rows_linear_backward(int n_threads, const long long sizes[3], const long long *start, const long long *row,
                         const long long *order, const real *value, const real *grad, real *to_weight) {
    Work w = {.n_rows = sizes[0], .n_columns = sizes[1], .n_channels = sizes[2], .start = start, .other = row,
              .order = order, .value = value, .grad = grad, .to = to_weight};
    return run(backward, &w, sizes[0], n_threads);
}
