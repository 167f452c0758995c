/* x' = (1 - tau) x + tau new, tau_i = tanh(s_i S_i), S_i = sum over edges i -> j of |q_j - q_i|^p, number by number.
 *
 * Axes: N nodes, H channels; the share s is of a node. With g the gradient of x' and r that of tau:
 *
 * to x: (1 - tau) g,    to new: tau g,    to S: s (1 - tau^2) (g (new - x) + r)
 *
 * and to q what edges.h makes of that of S. A thread owns nodes, and the number of threads changes no bit.
 */

#include "edges.h"

typedef struct {
    length n_nodes, n_channels;
    Ends sent, received;
    const real *x, *new, *q, *share; /* (N, H); share (N) or NULL for 1 */
    real *out, *rate;                /* (N, H) */
    const real *grad, *to_rate;      /* (N, H); to_rate may be NULL */
    real *to_x, *to_new, *to_q;      /* (N, H) */
    real *to_sum;                    /* (N, H) */
    int q_is_new;                    /* the gradient of q is added to that of new */
} Work;

/* Exact at both ends, where tau is 0 and where it is 1. */
INLINE vec between(vec x, vec new, vec tau) {
    const vec d = new - x;
    return pick(tau < (real)0.5, x + tau * d, new - (1 - tau) * d);
}

INLINE void step_of_node(const Work *w, length i) {
    const length H = w->n_channels, at = i * H;
    const real s = w->share ? w->share[i] : 1;
    powers_of_node(w->rate + at, w->q, w->sent, i, H);
    for (length h = 0; h < H; h += VL) {
        const vec tau = vec_tanh(s * load_end(w->rate + at, h, H));
        store_end(w->rate + at, h, H, tau);
        store_end(w->out + at, h, H, between(load_end(w->x + at, h, H), load_end(w->new + at, h, H), tau));
    }
}

INLINE void slope_of_node(const Work *w, length i) {
    const length H = w->n_channels, at = i * H;
    slopes_of_node(w->to_q + at, w->q, w->to_sum, w->sent, w->received, i, H);
    if (w->q_is_new)
        for (length h = 0; h < H; h++) w->to_new[at + h] += w->to_q[at + h];
}

SHARE(steps, step_of_node)
SHARE(slopes, slope_of_node)

/* All but the gradient of q, which needs that of the sums of all nodes. */
static void back(void *shared, int share, int n_shares) {
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
            store_end(w->to_sum + at, h, H, s * (1 - tau * tau) * r);
        }
    }
}

/* sizes: N, H. sent, received: starts and other ends of the edges that each node sends, and receives. */
void gate_forward(int n_threads, const long long sizes[2], const long long *sent_start,
                  const long long *sent_other, const real *x, const real *new, const real *q, const real *share,
                  real *out, real *rate) {
    Work w = {.n_nodes = sizes[0], .n_channels = sizes[1], .sent = {sent_start, sent_other}, .x = x, .new = new,
              .q = q, .share = share, .out = out, .rate = rate};
    in_threads(steps, &w, n_threads);
}

/* sizes: N, H, and whether q is new: then to_new is of both, and to_q is room, as to_sum always is. */
void gate_backward(int n_threads, const long long sizes[3], const long long *sent_start,
                   const long long *sent_other, const long long *received_start, const long long *received_other,
                   const real *x, const real *new, const real *q, const real *share, const real *rate,
                   const real *grad, const real *to_rate, real *to_x, real *to_new, real *to_q, real *to_sum) {
    Work w = {.n_nodes = sizes[0], .n_channels = sizes[1], .sent = {sent_start, sent_other},
              .received = {received_start, received_other}, .x = x, .new = new, .q = q, .share = share,
              .rate = (real *)rate, .grad = grad, .to_rate = to_rate, .to_x = to_x, .to_new = to_new, .to_q = to_q,
              .to_sum = to_sum, .q_is_new = (int)sizes[2]};
    in_threads(back, &w, n_threads);
    in_threads(slopes, &w, n_threads);
}
