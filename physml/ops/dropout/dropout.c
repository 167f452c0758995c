/* noise_i = 1 / q with probability q, else 0, drawn as torch draws on a CPU.
 *
 * torch's generator is the Mersenne Twister of 32 bits (Matsumoto and Nishimura, 1998). A number takes two of its
 * words: the lowest 53 bits of the two are a uniform number in [0, 1), and below q it is kept. torch takes them one
 * at a time, with a call and a lock for each; here a block of 624 words is made at once.
 */

#include "vec.h"

#include <stdint.h>

#define WORDS 624
#define AHEAD 397
#define CHUNK 512 /* numbers, two words each */

/* The beginning of what torch.get_rng_state() gives. */
typedef struct {
    uint64_t seed;
    int32_t left, seeded; /* left: words of the block that are still to be taken, and 1 */
    uint64_t next;        /* where in the block the next is */
    uint64_t word[WORDS];
} State;

typedef struct {
    uint32_t word[WORDS], ready[WORDS]; /* the block as it is kept, and as it is given out */
    int left, next;
} Engine;

static inline uint32_t mixed(uint32_t high, uint32_t low) {
    const uint32_t y = (high & 0x80000000u) | (low & 0x7fffffffu);
    return (y >> 1) ^ (0x9908b0dfu & -(low & 1u));
}

static void temper(Engine *e) {
    for (int i = 0; i < WORDS; i++) {
        uint32_t y = e->word[i];
        y ^= y >> 11;
        y ^= (y << 7) & 0x9d2c5680u;
        y ^= (y << 15) & 0xefc60000u;
        e->ready[i] = y ^ (y >> 18);
    }
}

static void next_block(Engine *e) {
    uint32_t *w = e->word;
    for (int i = 0; i < WORDS - AHEAD; i++) w[i] = w[i + AHEAD] ^ mixed(w[i], w[i + 1]);
    for (int i = WORDS - AHEAD; i < WORDS - 1; i++) w[i] = w[i - (WORDS - AHEAD)] ^ mixed(w[i], w[i + 1]);
    w[WORDS - 1] = w[AHEAD - 1] ^ mixed(w[WORDS - 1], w[0]);
    temper(e);
    e->left = WORDS + 1;
    e->next = 0;
}

static void take(Engine *e, uint32_t *to, int n) {
    while (n > 0) {
        if (e->left == 1) next_block(e);
        const int some = n < e->left - 1 ? n : e->left - 1;
        memcpy(to, e->ready + e->next, (size_t)some * sizeof *to);
        e->left -= some;
        e->next += some;
        to += some;
        n -= some;
    }
}

/* sizes: n. chance: q. state: of the generator, moved on. */
void dropout_noise(const long long sizes[1], const double chance[1], State *state, real *noise) {
    Engine e = {.left = state->left, .next = (int)state->next};
    for (int i = 0; i < WORDS; i++) e.word[i] = (uint32_t)state->word[i];
    temper(&e);
    const uint64_t below = (uint64_t)ceil(chance[0] * 0x1p53);
    const real kept = 1 / (real)chance[0];
    uint64_t pair[CHUNK];
    for (long long first = 0; first < sizes[0]; first += CHUNK) {
        const int n = sizes[0] - first < CHUNK ? (int)(sizes[0] - first) : CHUNK;
        take(&e, (uint32_t *)pair, 2 * n);
        for (int i = 0; i < n; i++) { /* the first word of a pair is the higher one */
            const uint64_t drawn = (pair[i] << 32 | pair[i] >> 32) & 0x1fffffffffffffu;
            noise[first + i] = drawn < below ? kept : 0;
        }
    }
    state->left = e.left;
    state->next = (uint64_t)e.next;
    for (int i = 0; i < WORDS; i++) state->word[i] = e.word[i];
}
