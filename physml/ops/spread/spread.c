/* Y_i = sum over the run of edges e of node i of w_e X_j.  Axes: N nodes, E edges, H channels.
 *
 * A thread owns nodes and sums over a node's edges in their order, so that the number of threads changes no bit.
 * The rows that come in a few edges are fetched ahead: a processor does not foresee where they lie.
 */

#include "rows.h"
#include "threads.h"

#define BLOCK 64 /* channels whose sums stay in registers, whole vectors */
#define AHEAD 12 /* edges */

typedef struct {
    length n_nodes, n_channels;
    const long long *start, *other; /* (N + 1): where a node's edges begin; (E): their other ends */
    const real *weight, *x;         /* (E); (N, H) */
    real *y;                        /* (N, H) */
} Work;

/* n channels from c on of node i. */
INLINE void node(const Work *w, length i, length c, length n) {
    const length H = w->n_channels;
    const long long last = w->start[w->n_nodes] - 1;
    const real *x = w->x + c;
    vec total[BLOCK / VL] = {0};
    for (long long e = w->start[i]; e < w->start[i + 1]; e++) {
        expect(x + w->other[e + AHEAD < last ? e + AHEAD : last] * H, n);
        const real *row = x + w->other[e] * H;
        for (length k = 0; k < n; k += VL) total[k / VL] += w->weight[e] * load_end(row, k, n);
    }
    for (length k = 0; k < n; k += VL) store_end(w->y + i * H + c, k, n, total[k / VL]);
}

/* The loops over channels are unrolled where their number is known to the compiler. */
static void nodes(void *shared, int share, int n_shares) {
    const Work *w = shared;
    const length N = w->n_nodes, H = w->n_channels;
    const length first = first_row((int)N, share, n_shares), end = first_row((int)N, share + 1, n_shares);
    for (length c = 0; c < H; c += BLOCK) {
        const length n = least(BLOCK, H - c);
        if (n == BLOCK)
            for (length i = first; i < end; i++) node(w, i, c, BLOCK);
        else if (n == BLOCK / 2)
            for (length i = first; i < end; i++) node(w, i, c, BLOCK / 2);
        else
            for (length i = first; i < end; i++) node(w, i, c, n);
    }
}

/* sizes: N, H. */
void spread(int n_threads, const long long sizes[2], const long long *start, const long long *other,
            const real *weight, const real *x, real *y) {
    Work w = {.n_nodes = sizes[0], .n_channels = sizes[1], .start = start, .other = other, .weight = weight, .x = x,
              .y = y};
    in_threads(nodes, &w, n_threads);
}
