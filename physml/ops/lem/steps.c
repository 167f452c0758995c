/* LEM, a few steps forward with weights as they lie in memory (dot.h); the map: reference.py.
 *
 * B rows of a batch, T steps, D features, H hidden units. Rows go in groups whose pre-activations stay near.
 */
#include "dot.h"

typedef struct {
    const real *u, *y, *z, *W, *Wy, *V, *b;
    length u_row, u_step;   /* strides of u; features lie together */
    real *path, *y_last, *z_last; /* (T, B, H); (B, H) */
    length n_steps, n_batch, d_in, n_hidden;
    int gated, clipped;
    real dt, low, high;
} Call;

static inline vec clamped(const Call *c, vec step) {
    return c->clipped ? vec_min(vec_max(step, splat(c->low)), splat(c->high)) : step;
}

/* The step of a unit, from the pre-activation of its gate. */
static inline vec step_of(const Call *c, const real *gate) {
    return c->gated ? clamped(c, c->dt * vec_sigmoid(load(gate))) : splat(c->dt);
}

static void advance(const Call *c, length n, length row, length rows, real *pre, real *next) {
    const length D = c->d_in, H = c->n_hidden, first = c->gated ? 3 * H : H, at = (n * c->n_batch + row) * H;
    const real *u = c->u + row * c->u_row + n * c->u_step, *old_y = n ? c->path + at - c->n_batch * H : c->y + row * H;
    real *z = c->z_last + row * H, *y = c->path + at;
    const Product of_y[] = {{old_y, c->W, H, H}, {u, c->V, c->u_row, D}};
    const Product of_z[] = {{z, c->Wy, H, H}, {u, c->V + first * D, c->u_row, D}};
    dots(rows, first, of_y, 2, c->b, pre, first);
    for (length r = 0; r < rows; r++)
        for (length h = 0; h < H; h += VL) {
            const real *a = pre + r * first + h;
            const vec old = load_end(z + r * H, h, H);
            store_end(z + r * H, h, H, old + step_of(c, a + H) * (vec_tanh(load(a)) - old));
        }
    dots(rows, H, of_z, 2, c->b + first, next, H);
    for (length r = 0; r < rows; r++)
        for (length h = 0; h < H; h += VL) {
            const vec old = load_end(old_y + r * H, h, H), tanh_y = vec_tanh(load(next + r * H + h));
            const vec new = old + step_of(c, pre + r * first + (c->gated ? 2 * H : 0) + h) * (tanh_y - old);
            store_end(y + r * H, h, H, new);
        }
}

/* 0, or 1 if there was no memory. All but u contiguous; y_last and z_last are no part of the path. */
int lem_steps(const real *u, ptrdiff_t u_row, ptrdiff_t u_step, const real *y, const real *z, const real *W,
              const real *Wy, const real *V, const real *b, real *path, real *y_last, real *z_last,
              ptrdiff_t n_steps, ptrdiff_t n_batch, ptrdiff_t d_in, ptrdiff_t n_hidden, int gated, int clipped,
              double dt, double low, double high) {
    const Call c = {u, y, z, W, Wy, V, b, u_row, u_step, path, y_last, z_last, n_steps, n_batch, d_in, n_hidden,
                    gated, clipped, (real)dt, (real)low, (real)high};
    const length first = gated ? 3 * n_hidden : n_hidden, width = first + n_hidden, most = rows_nearby(width);
    real nearby[NEARBY + 2 * VL], *room = width <= NEARBY ? nearby : reals(width + 2 * VL);
    if (!room) return 1;
    real *next = room + most * first + VL; /* vectors may reach beyond the end */
    memcpy(z_last, z, (size_t)(n_batch * n_hidden) * sizeof(real));
    for (length row = 0; row < n_batch; row += most)
        for (length n = 0; n < n_steps; n++) advance(&c, n, row, least(most, n_batch - row), room, next);
    memcpy(y_last, path + (n_steps - 1) * n_batch * n_hidden, (size_t)(n_batch * n_hidden) * sizeof(real));
    if (room != nearby) free(room);
    return 0;
}
