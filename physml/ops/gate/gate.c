/* x' = (1 - tau) x + tau new, tau = tanh(s t), number by number.  Axes: N nodes, H channels; s is of a node.
 *
 * With g the gradient of x' and r that of tau:
 *
 * to x: (1 - tau) g,    to new: tau g,    to t: s (1 - tau^2) (g (new - x) + r)
 */

#include "rows.h"
#include "threads.h"

typedef struct {
    length n_nodes, n_channels;
    const real *x, *new, *total, *share;         /* (N, H); share (N) or NULL for 1 */
    real *out, *rate;                            /* (N, H) */
    const real *grad, *to_rate;                  /* (N, H); to_rate may be NULL */
    real *to_x, *to_new, *to_total;              /* (N, H) */
} Work;

/* Exact at both ends, where tau is 0 and where it is 1. */
INLINE vec between(vec x, vec new, vec tau) {
    const vec d = new - x;
    return pick(tau < (real)0.5, x + tau * d, new - (1 - tau) * d);
}

static void forward(void *shared, int share, int n_shares) {
    const Work *w = shared;
    const length N = w->n_nodes, H = w->n_channels, end = first_row((int)N, share + 1, n_shares);
    for (length i = first_row((int)N, share, n_shares); i < end; i++) {
        const length at = i * H;
        const real s = w->share ? w->share[i] : 1;
        for (length h = 0; h < H; h += VL) {
            const vec tau = vec_tanh(s * load_end(w->total + at, h, H));
            store_end(w->rate + at, h, H, tau);
            store_end(w->out + at, h, H, between(load_end(w->x + at, h, H), load_end(w->new + at, h, H), tau));
        }
    }
}

static void backward(void *shared, int share, int n_shares) {
    const Work *w = shared;
    const length N = w->n_nodes, H = w->n_channels, end = first_row((int)N, share + 1, n_shares);
    for (length i = first_row((int)N, share, n_shares); i < end; i++) {
        const length at = i * H;
        const real s = w->share ? w->share[i] : 1;
        for (length h = 0; h < H; h += VL) {
            const vec tau = load_end(w->rate + at, h, H), g = load_end(w->grad + at, h, H);
            vec r = g * (load_end(w->new + at, h, H) - load_end(w->x + at, h, H));
            if (w->to_rate) r += load_end(w->to_rate + at, h, H);
            store_end(w->to_x + at, h, H, (1 - tau) * g);
            store_end(w->to_new + at, h, H, tau * g);
            store_end(w->to_total + at, h, H, s * (1 - tau * tau) * r);
        }
    }
}

/* sizes: N, H. */
void gate_forward(int n_threads, const long long sizes[2], const real *x, const real *new, const real *total,
                  const real *share, real *out, real *rate) {
    Work w = {.n_nodes = sizes[0], .n_channels = sizes[1], .x = x, .new = new, .total = total, .share = share,
              .out = out, .rate = rate};
    in_threads(forward, &w, n_threads);
}

void gate_backward(int n_threads, const long long sizes[2], const real *x, const real *new, const real *share,
                   const real *rate, const real *grad, const real *to_rate, real *to_x, real *to_new,
                   real *to_total) {
    Work w = {.n_nodes = sizes[0], .n_channels = sizes[1], .x = x, .new = new, .share = share,
              .rate = (real *)rate, .grad = grad, .to_rate = to_rate, .to_x = to_x, .to_new = to_new,
              .to_total = to_total};
    in_threads(backward, &w, n_threads);
}
