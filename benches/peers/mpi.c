/* An MPI library: one-sided puts polled by the target, send/receive, fetch-and-add, collectives. PEER_WINDOWS: "no" leaves out what needs
 * windows, which some transports refuse, and has messages instead; "only" leaves out the rest. */
#include "peer.h"
#include <mpi.h>

#ifdef MPICH_VERSION
#define COLUMN "mpich"
#else
#define COLUMN "openmpi"
#endif

enum { WINDOW = 65 << 20, FLAG = 64 << 20 };

static int rank, size, windows = 1, messages = 1;
static char *base;
static MPI_Win win;

static volatile uint64_t *word(size_t at)
{
    return (volatile uint64_t *)(base + at);
}

/* The target of passive communication need not call MPI for its window to change, but may have to for its library to
 * move on: look at the word often, call MPI now and then. */
static void until(size_t at, uint64_t value)
{
    unsigned looks = 0;
    while (*word(at) != value)
        if ((++looks & 1023) == 0)
            MPI_Win_sync(win);
}

static double put_notice(size_t bytes)
{
    char *from = memset(malloc(bytes), 1, bytes);
    uint64_t round = 0;
    int each = bytes > 32768 ? 50 : 500, other = 1 - rank, wrong = 0;
    double ns;
    *word(FLAG) = 0;
    MPI_Win_sync(win);
    MPI_Barrier(MPI_COMM_WORLD);
    PEER_MEASURE(ns, each, {
        for (int i = 0; i < each; i++) {
            round++;
            if (rank == 1) {
                until(FLAG, round);
                wrong |= *word(bytes - 8) != round;
            }
            memcpy(from + bytes - 8, &round, 8);
            MPI_Put(from, bytes, MPI_BYTE, other, 0, bytes, MPI_BYTE, win);
            MPI_Win_flush(other, win);
            MPI_Put(&round, 1, MPI_UINT64_T, other, FLAG, 1, MPI_UINT64_T, win);
            MPI_Win_flush(other, win);
            if (rank == 0) {
                until(FLAG, round);
                wrong |= *word(bytes - 8) != round;
            }
        }
    });
    free(from);
    MPI_Barrier(MPI_COMM_WORLD);
    return wrong ? -1 : ns / 2;
}

static double send_receive(size_t bytes)
{
    char *buffer = memset(malloc(bytes), 1, bytes);
    int each = bytes > 32768 ? 50 : 500, other = 1 - rank;
    double ns;
    MPI_Barrier(MPI_COMM_WORLD);
    PEER_MEASURE(ns, each, {
        for (int i = 0; i < each; i++) {
            if (rank == 0)
                MPI_Send(buffer, bytes, MPI_BYTE, other, 0, MPI_COMM_WORLD);
            MPI_Recv(buffer, bytes, MPI_BYTE, other, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            if (rank == 1)
                MPI_Send(buffer, bytes, MPI_BYTE, other, 0, MPI_COMM_WORLD);
        }
    });
    free(buffer);
    return ns / 2;
}

static double fetch_add(void)
{
    double ns = 0;
    if (rank == 0) {
        uint64_t one = 1, before;
        PEER_MEASURE(ns, 2000, {
            for (int i = 0; i < 2000; i++) {
                MPI_Fetch_and_op(&one, &before, MPI_UINT64_T, 1, 4096, MPI_SUM, win);
                MPI_Win_flush(1, win);
            }
        });
    }
    MPI_Barrier(MPI_COMM_WORLD);
    return ns;
}

static double puts_ns(size_t bytes, int each, size_t window)
{
    double ns = 0;
    if (rank == 0) {
        /* Written to: untouched pages of zeroes are all one page, and cost no bandwidth. */
        char *from = memset(malloc(bytes), 1, bytes);
        PEER_MEASURE(ns, each, {
            for (int i = 0; i < each; i++)
                MPI_Put(from, bytes, MPI_BYTE, 1, i * bytes % window, bytes, MPI_BYTE, win);
            MPI_Win_flush(1, win);
        });
        free(from);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    return ns;
}

/* Of all pairs together, from when all begin until the last one is done. */
static double pair_rate(void)
{
    enum { EACH = 65536 };
    int other = rank ^ 1;
    uint64_t one = 1;
    double ns;
    PEER_MEASURE(ns, size / 2 * EACH, {
        MPI_Barrier(MPI_COMM_WORLD);
        if (rank % 2 == 0) {
            for (int i = 0; i < EACH; i++)
                MPI_Put(&one, 8, MPI_BYTE, other, i * 8 % 4096, 8, MPI_BYTE, win);
            MPI_Win_flush(other, win);
        }
        MPI_Barrier(MPI_COMM_WORLD);
    });
    return 1e3 / ns;
}

/* From the start of mpirun until the last process has initialised MPI. */
static double start(double initialised)
{
    double last = 0;
    const char *begun = getenv("PEER_BEGUN");
    MPI_Allreduce(&initialised, &last, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return begun ? (last - atof(begun)) / 1e6 : -1;
}

static double memory(double taken)
{
    double sum = 0;
    MPI_Allreduce(&taken, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    return sum / size;
}

/* Messages, as many at a time as a batch has; the receiver acknowledges them. */
static double stream_ns(size_t bytes, int each)
{
    char *buffer = memset(malloc(bytes), 1, bytes), end = 0;
    MPI_Request *requests = malloc(each * sizeof *requests);
    double ns;
    MPI_Barrier(MPI_COMM_WORLD);
    PEER_MEASURE(ns, each, {
        for (int i = 0; i < each; i++)
            if (rank == 0)
                MPI_Isend(buffer, bytes, MPI_BYTE, 1, 0, MPI_COMM_WORLD, &requests[i]);
            else
                MPI_Irecv(buffer, bytes, MPI_BYTE, 0, 0, MPI_COMM_WORLD, &requests[i]);
        MPI_Waitall(each, requests, MPI_STATUSES_IGNORE);
        if (rank == 0)
            MPI_Recv(&end, 1, MPI_BYTE, 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        else
            MPI_Send(&end, 1, MPI_BYTE, 0, 1, MPI_COMM_WORLD);
    });
    free(requests);
    free(buffer);
    return ns;
}

static double barrier(int each)
{
    double ns;
    MPI_Barrier(MPI_COMM_WORLD);
    PEER_MEASURE(ns, each, {
        for (int i = 0; i < each; i++)
            MPI_Barrier(MPI_COMM_WORLD);
    });
    return ns / 1e3;
}

static double allreduce(int each)
{
    double ns, mine = rank, sum;
    MPI_Barrier(MPI_COMM_WORLD);
    PEER_MEASURE(ns, each, {
        for (int i = 0; i < each; i++)
            MPI_Allreduce(&mine, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    });
    return ns / 1e3;
}

int main(int argc, char **argv)
{
    int cores, pairs;
    double initialised, taken = peer_memory();
    peer_quick = argc > 1 && atoi(argv[1]);
    MPI_Init(&argc, &argv);
    initialised = peer_ns();
    taken = peer_memory() - taken;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    cores = peer_pin(rank);
    if (getenv("PEER_WINDOWS")) {
        windows = strcmp(getenv("PEER_WINDOWS"), "no");
        messages = strcmp(getenv("PEER_WINDOWS"), "only");
    }
    pairs = windows && size % 2 == 0 && size <= 16;
    windows = windows && size == 2;
    if (pairs) {
        MPI_Win_allocate(windows ? WINDOW : 4096, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &win);
        MPI_Win_lock_all(MPI_MODE_NOCHECK, win);
    }
    for (int i = 2; i < argc; i++) {
        char metric[32];
        int processes, each = size > cores ? 100 : 500;
        size_t bytes;
        double value = 0;
        if (!peer_case(argv[i], metric, &processes, &bytes) || processes != size)
            continue;
        if (!strcmp(metric, "put_notice")) {
            double put = windows ? put_notice(bytes) : 0, sent = messages ? send_receive(bytes) : 0;
            if (rank == 0 && windows)
                peer_say(metric, size, bytes, COLUMN "/put", put);
            if (rank == 0 && messages)
                peer_say(metric, size, bytes, COLUMN "/sendrecv", sent);
            continue;
        }
        if (!windows && (!strcmp(metric, "put_rate") || !strcmp(metric, "bandwidth"))) {
            double ns = stream_ns(bytes, strcmp(metric, "put_rate") ? peer_each(bytes) : 8192);
            if (rank == 0)
                peer_say(metric, size, bytes, COLUMN "/sendrecv", strcmp(metric, "put_rate") ? bytes / ns : 1e3 / ns);
            continue;
        }
        if (!strcmp(metric, "start"))
            value = start(initialised);
        else if (!strcmp(metric, "memory"))
            value = memory(taken);
        else if (!strcmp(metric, "pair_rate") && pairs)
            value = pair_rate();
        else if (!strcmp(metric, "message"))
            value = send_receive(bytes);
        else if (!strcmp(metric, "message_bandwidth"))
            value = bytes / send_receive(bytes);
        else if (windows && !strcmp(metric, "fetch_add"))
            value = fetch_add();
        else if (!strcmp(metric, "put_rate"))
            value = 1e3 / puts_ns(8, 8192, 4096);
        else if (!strcmp(metric, "bandwidth"))
            value = bytes / puts_ns(bytes, peer_each(bytes), bytes);
        else if (!strcmp(metric, "barrier"))
            value = barrier(each);
        else if (!strcmp(metric, "allreduce"))
            value = allreduce(each);
        else
            continue;
        if (rank == 0)
            peer_say(metric, size, bytes, COLUMN, value);
    }
    if (pairs) {
        MPI_Win_unlock_all(win);
        MPI_Win_free(&win);
    }
    MPI_Finalize();
    return 0;
}
