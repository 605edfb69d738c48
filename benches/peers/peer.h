/* What the programs that measure other libraries share: cases, clock, medians, pinning, output.
 *
 * Each gets the arguments QUICK(0|1) CASE..., a case being METRIC:PROCESSES:BYTES, and prints a line
 * "CASE COLUMN VALUE" for each that it can do. */
#ifndef PEER_H
#define PEER_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

static int peer_quick;

static inline double peer_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}

/* Pins the calling thread to the core that its rank has; returns how many cores there are. */
static inline int peer_pin(int rank)
{
    cpu_set_t all, one;
    int cores, want, cpu;
    /* Nothing may go on spinning when the launcher has died. */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    sched_getaffinity(0, sizeof all, &all);
    cores = CPU_COUNT(&all);
    want = rank % cores;
    for (cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &all) && want-- == 0)
            break;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    sched_setaffinity(0, sizeof one, &one);
    return cores;
}

/* KiB of memory that this process has to itself, with its part of what it shares: files that it has mapped are not in it. */
static inline double peer_memory(void)
{
    double sum = 0, part;
    char line[256];
    FILE *file = fopen("/proc/self/smaps_rollup", "r");
    if (!file)
        return 0;
    while (fgets(line, sizeof line, file))
        if (sscanf(line, "Pss_Anon: %lf", &part) == 1 || sscanf(line, "Pss_Shmem: %lf", &part) == 1)
            sum += part;
    fclose(file);
    return sum;
}

static inline int peer_by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static inline double peer_median(double *values, int n)
{
    qsort(values, n, sizeof *values, peer_by_value);
    return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

enum { PEER_MOST = 41 };

static inline int peer_batches(void)
{
    return peer_quick ? 15 : PEER_MOST;
}

/* Operations in a batch that moves about 4 MiB. */
static inline int peer_each(size_t bytes)
{
    size_t n = ((size_t)4 << 20) / bytes;
    return n < 1 ? 1 : n > 4096 ? 4096 : (int)n;
}

static inline void peer_say(const char *metric, int processes, size_t bytes, const char *column, double value)
{
    printf("%s:%d:%zu %s %g\n", metric, processes, bytes, column, value);
    fflush(stdout);
}

/* Splits "METRIC:PROCESSES:BYTES". */
static inline int peer_case(const char *text, char metric[32], int *processes, size_t *bytes)
{
    return sscanf(text, "%31[^:]:%d:%zu", metric, processes, bytes) == 3;
}

/* Median over batches of the ns per operation; BODY does `each` operations. One more batch is warm-up. */
#define PEER_MEASURE(result, each, BODY)                          \
    do {                                                          \
        double peer_times_[PEER_MOST];                            \
        int peer_b_, peer_n_ = peer_batches();                    \
        for (peer_b_ = -1; peer_b_ < peer_n_; peer_b_++) {        \
            double peer_start_ = peer_ns();                       \
            BODY;                                                 \
            if (peer_b_ >= 0)                                     \
                peer_times_[peer_b_] = (peer_ns() - peer_start_) / (each); \
        }                                                         \
        (result) = peer_median(peer_times_, peer_n_);             \
    } while (0)

#endif
