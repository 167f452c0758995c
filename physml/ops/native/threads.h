/* n shares of one piece of work at once, in threads made for this call and gone after it. */
#ifndef PHYSML_THREADS_H
#define PHYSML_THREADS_H

#include <pthread.h>
#include <stddef.h>

#define MOST_THREADS 256

typedef void work_fn(void *shared, int share, int n_shares);

typedef struct {
    work_fn *work;
    void *shared;
    int share, n_shares;
} errand;

static void *do_errand(void *p) {
    const errand *e = p;
    e->work(e->shared, e->share, e->n_shares);
    return NULL;
}

/* The caller takes share 0, those beyond MOST_THREADS, and those for which the system gives no thread: the
   result is the same. */
static void in_threads(work_fn *work, void *shared, int n_shares) {
    pthread_t thread[MOST_THREADS];
    errand errands[MOST_THREADS];
    char runs[MOST_THREADS];
    for (int k = 1; k < n_shares && k < MOST_THREADS; k++) {
        errands[k] = (errand){work, shared, k, n_shares};
        runs[k] = pthread_create(&thread[k], NULL, do_errand, &errands[k]) == 0;
    }
    work(shared, 0, n_shares);
    for (int k = 1; k < n_shares; k++) {
        if (k < MOST_THREADS && runs[k]) pthread_join(thread[k], NULL);
        else work(shared, k, n_shares);
    }
}

/* Of n rows, share k takes those from first_row(n, k, n_shares) to before first_row(n, k + 1, n_shares). */
static inline int first_row(int n, int share, int n_shares) {
    return (int)((long long)n * share / n_shares);
}

#endif
