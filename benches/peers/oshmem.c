/* An OpenSHMEM library: puts with a flag behind a fence, fetch-and-add, collectives. */
#include "peer.h"
#include <shmem.h>

enum { WINDOW = 65 << 20, FLAG = 64 << 20 };

static int rank, size;
static char *base;

static double put_notice(size_t bytes)
{
    char *from = memset(malloc(bytes), 1, bytes);
    volatile uint64_t *flag = (volatile uint64_t *)(base + FLAG);
    volatile uint64_t *last = (volatile uint64_t *)(base + bytes - 8);
    long round = 0;
    int each = bytes > 32768 ? 50 : 500, other = 1 - rank, wrong = 0;
    double ns;
    *flag = 0;
    shmem_barrier_all();
    PEER_MEASURE(ns, each, {
        for (int i = 0; i < each; i++) {
            round++;
            if (rank == 1) {
                while (*flag != (uint64_t)round)
                    ;
                wrong |= *last != (uint64_t)round;
            }
            memcpy(from + bytes - 8, &round, 8);
            shmem_putmem(base, from, bytes, other);
            shmem_fence();
            shmem_long_p((long *)(base + FLAG), round, other);
            if (rank == 0) {
                while (*flag != (uint64_t)round)
                    ;
                wrong |= *last != (uint64_t)round;
            }
        }
    });
    free(from);
    shmem_barrier_all();
    return wrong ? -1 : ns / 2;
}

static double fetch_add(void)
{
    double ns = 0;
    if (rank == 0)
        PEER_MEASURE(ns, 2000, {
            for (int i = 0; i < 2000; i++)
                shmem_long_atomic_fetch_add((long *)(base + 4096), 1, 1);
        });
    shmem_barrier_all();
    return ns;
}

static double rate(void)
{
    double ns = 0;
    if (rank == 0)
        PEER_MEASURE(ns, 32768, {
            for (int i = 0; i < 32768; i++)
                shmem_long_p((long *)base + i % 512, i, 1);
            shmem_quiet();
        });
    shmem_barrier_all();
    return 1e3 / ns;
}

static double bandwidth(size_t bytes)
{
    double ns = 1;
    if (rank == 0) {
        /* Written to: untouched pages of zeroes are all one page, and cost no bandwidth. */
        char *from = memset(malloc(bytes), 1, bytes);
        int each = peer_each(bytes);
        PEER_MEASURE(ns, each, {
            for (int i = 0; i < each; i++)
                shmem_putmem(base, from, bytes, 1);
            shmem_quiet();
        });
        free(from);
    }
    shmem_barrier_all();
    return bytes / ns;
}

static double barrier(int each)
{
    double ns;
    shmem_barrier_all();
    PEER_MEASURE(ns, each, {
        for (int i = 0; i < each; i++)
            shmem_barrier_all();
    });
    return ns / 1e3;
}

int main(int argc, char **argv)
{
    int cores;
    peer_quick = argc > 1 && atoi(argv[1]);
    shmem_init();
    rank = shmem_my_pe();
    size = shmem_n_pes();
    cores = peer_pin(rank);
    base = shmem_malloc(size == 2 ? WINDOW : 4096);
    for (int i = 2; i < argc; i++) {
        char metric[32];
        int processes, each = size > cores ? 100 : 500;
        size_t bytes;
        double value = 0;
        if (!peer_case(argv[i], metric, &processes, &bytes) || processes != size)
            continue;
        if (!strcmp(metric, "put_notice"))
            value = put_notice(bytes);
        else if (!strcmp(metric, "fetch_add"))
            value = fetch_add();
        else if (!strcmp(metric, "put_rate"))
            value = rate();
        else if (!strcmp(metric, "bandwidth"))
            value = bandwidth(bytes);
        else if (!strcmp(metric, "barrier"))
            value = barrier(each);
        else
            continue;
        if (rank == 0)
            peer_say(metric, size, bytes, "oshmem", value);
    }
    shmem_free(base);
    shmem_finalize();
    return 0;
}
