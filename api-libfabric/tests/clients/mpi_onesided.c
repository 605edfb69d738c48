/* One-sided communication and messages of MPI over the provider, started by run-clients: windows of both kinds, all ways to
   synchronise, all kinds of operations. The program compares the arrived data with the expected data. The argument `no-swap` leaves
   MPI_Compare_and_swap out. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank, size;

#define CHECK(condition, ...)                                                                                                             \
    do {                                                                                                                                   \
        if (!(condition)) {                                                                                                                \
            fprintf(stderr, "mpi_onesided: rank %d, line %d: ", rank, __LINE__);                                                           \
            fprintf(stderr, __VA_ARGS__);                                                                                                  \
            fprintf(stderr, "\n");                                                                                                         \
            MPI_Abort(MPI_COMM_WORLD, 1);                                                                                                  \
        }                                                                                                                                  \
    } while (0)

enum { WORDS = 1 << 15, ROUNDS = 40 };

/* The value that rank `from` puts at word `at` in round `round`. */
static long word(int from, int round, int at) {
    return (long)from * 1000000007L + round * 10007L + at;
}

static int right(void) { return (rank + 1) % size; }
static int left(void) { return (rank + size - 1) % size; }

static void messages(void) {
    static const int lens[] = {0, 1, 100, 5000, 70000, 1 << 20};
    unsigned char *out = malloc(1 << 20), *in = malloc(1 << 20);
    for (int round = 0; round < (int)(sizeof lens / sizeof *lens); round++) {
        int len = lens[round], got;
        for (int i = 0; i < len; i++)
            out[i] = (unsigned char)(word(rank, round, i) % 251);
        MPI_Status status;
        MPI_Sendrecv(out, len, MPI_BYTE, right(), round, in, 1 << 20, MPI_BYTE, left(), round, MPI_COMM_WORLD, &status);
        MPI_Get_count(&status, MPI_BYTE, &got);
        CHECK(got == len, "a message of %d bytes came with %d", len, got);
        for (int i = 0; i < len; i++)
            CHECK(in[i] == word(left(), round, i) % 251, "byte %d of a message of %d", i, len);
    }
    /* Many messages from any source. Messages of one sender stay in order. */
    enum { EACH = 100 };
    MPI_Request requests[EACH];
    int values[EACH], *last = calloc(size, sizeof *last);
    for (int i = 0; i < EACH; i++) {
        values[i] = rank * 1000 + i;
        MPI_Isend(&values[i], 1, MPI_INT, 0, 99, MPI_COMM_WORLD, &requests[i]);
    }
    for (int i = 0; rank == 0 && i < EACH * size; i++) {
        int value;
        MPI_Status status;
        MPI_Recv(&value, 1, MPI_INT, MPI_ANY_SOURCE, 99, MPI_COMM_WORLD, &status);
        int expected = status.MPI_SOURCE * 1000 + last[status.MPI_SOURCE]++;
        CHECK(value == expected, "message %d of anybody: %d instead of %d", i, value, expected);
    }
    MPI_Waitall(EACH, requests, MPI_STATUSES_IGNORE);
    free(last);
    free(in);
    free(out);
}

static void holds(const long *memory, int from, int round, int words, const char *what) {
    for (int i = 0; i < words; i++)
        CHECK(memory[i] == word(from, round, i), "%s, round %d: word %d is %ld instead of %ld", what, round, i, memory[i],
              word(from, round, i));
}

static void fences(MPI_Win window, long *memory) {
    long *out = malloc(WORDS * sizeof *out), *in = malloc(WORDS * sizeof *in);
    for (int round = 0; round < ROUNDS; round++) {
        int words = round % 8 == 7 ? WORDS / 2 : 1 << round % 8;
        for (int i = 0; i < words; i++) {
            out[i] = word(rank, round, i);
            memory[WORDS / 2 + i] = word(rank, -round, i);
        }
        MPI_Win_fence(MPI_MODE_NOPRECEDE, window);
        MPI_Put(out, words, MPI_LONG, right(), 0, words, MPI_LONG, window);
        MPI_Get(in, words, MPI_LONG, left(), WORDS / 2, words, MPI_LONG, window);
        MPI_Win_fence(0, window);
        holds(memory, left(), round, words, "put and fence");
        holds(in, left(), -round, words, "get and fence");
        MPI_Win_fence(MPI_MODE_NOSUCCEED, window);
    }
    free(in);
    free(out);
}

/* Strided at the target and at the origin. */
static void strided(MPI_Win window, long *memory) {
    enum { BLOCKS = 50, STRIDE = 7 };
    long out[2 * BLOCKS];
    MPI_Datatype columns;
    MPI_Type_vector(BLOCKS, 2, STRIDE, MPI_LONG, &columns);
    MPI_Type_commit(&columns);
    for (int i = 0; i < BLOCKS * STRIDE; i++)
        memory[i] = -1;
    for (int i = 0; i < 2 * BLOCKS; i++)
        out[i] = word(rank, 3, i);
    MPI_Win_fence(0, window);
    MPI_Put(out, 2 * BLOCKS, MPI_LONG, right(), 0, 1, columns, window);
    MPI_Win_fence(0, window);
    for (int i = 0; i < (BLOCKS - 1) * STRIDE + 2; i++) {
        long expected = i % STRIDE < 2 ? word(left(), 3, i / STRIDE * 2 + i % STRIDE) : -1;
        CHECK(memory[i] == expected, "strided put: word %d is %ld instead of %ld", i, memory[i], expected);
    }
    MPI_Type_free(&columns);
}

static void post_start(MPI_Win window, long *memory) {
    MPI_Group all, writers, targets;
    MPI_Comm_group(MPI_COMM_WORLD, &all);
    MPI_Group_incl(all, 1, (int[]){left()}, &writers);
    MPI_Group_incl(all, 1, (int[]){right()}, &targets);
    for (int round = 0; round < ROUNDS; round++) {
        long out[16];
        for (int i = 0; i < 16; i++)
            out[i] = word(rank, round, i);
        MPI_Win_post(writers, 0, window);
        MPI_Win_start(targets, 0, window);
        MPI_Put(out, 16, MPI_LONG, right(), 0, 16, MPI_LONG, window);
        MPI_Win_complete(window);
        MPI_Win_wait(window);
        holds(memory, left(), round, 16, "post, start, complete, wait");
    }
    MPI_Group_free(&targets);
    MPI_Group_free(&writers);
    MPI_Group_free(&all);
}

/* Each rank in turn, under a lock: reads, adds, writes. */
static void locks(MPI_Win window, long *memory) {
    if (rank == 0) {
        MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, window);
        memory[0] = 0;
        MPI_Win_unlock(0, window);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    for (int round = 0; round < ROUNDS; round++) {
        long value;
        MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, window);
        MPI_Get(&value, 1, MPI_LONG, 0, 0, 1, MPI_LONG, window);
        MPI_Win_flush(0, window);
        value++;
        MPI_Put(&value, 1, MPI_LONG, 0, 0, 1, MPI_LONG, window);
        MPI_Win_unlock(0, window);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    long value = 0;
    MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, window);
    MPI_Get(&value, 1, MPI_LONG, 0, 0, 1, MPI_LONG, window);
    MPI_Win_unlock(0, window);
    CHECK(value == (long)ROUNDS * size, "additions under locks: %ld instead of %ld", value, (long)ROUNDS * size);
    MPI_Barrier(MPI_COMM_WORLD);
}

static void set_up(MPI_Win window, long *memory, int words) {
    MPI_Win_lock(MPI_LOCK_EXCLUSIVE, rank, 0, window);
    memset(memory, 0, words * sizeof *memory);
    MPI_Win_unlock(rank, window);
    MPI_Barrier(MPI_COMM_WORLD);
}

/* Each number is drawn once. */
static void tickets(MPI_Win window, long *memory) {
    set_up(window, memory, 8);
    long one = 1, *drawn = malloc(ROUNDS * sizeof *drawn), *all = malloc((size_t)ROUNDS * size * sizeof *all);
    MPI_Win_lock_all(0, window);
    for (int round = 0; round < ROUNDS; round++) {
        MPI_Fetch_and_op(&one, &drawn[round], MPI_LONG, 0, 1, MPI_SUM, window);
        MPI_Win_flush(0, window);
        CHECK(round == 0 || drawn[round] > drawn[round - 1], "ticket %ld after %ld", drawn[round], drawn[round - 1]);
    }
    MPI_Win_unlock_all(window);
    MPI_Allgather(drawn, ROUNDS, MPI_LONG, all, ROUNDS, MPI_LONG, MPI_COMM_WORLD);
    char *seen = calloc(ROUNDS, size);
    for (int i = 0; i < ROUNDS * size; i++) {
        CHECK(all[i] >= 0 && all[i] < (long)ROUNDS * size && !seen[all[i]], "ticket %ld is wrong, or drawn twice", all[i]);
        seen[all[i]] = 1;
    }
    free(seen);
    free(all);
    free(drawn);
}

/* Each successful swap increments the value. So the final value is the number of successful swaps. */
static void swaps(MPI_Win window, long *memory) {
    set_up(window, memory, 8);
    long won = 0, seen = 0;
    MPI_Win_lock_all(0, window);
    while (won < ROUNDS) {
        long next = seen + 1, before;
        MPI_Compare_and_swap(&next, &seen, &before, MPI_LONG, 0, 2, window);
        MPI_Win_flush(0, window);
        won += before == seen;
        seen = before == seen ? next : before;
    }
    MPI_Win_flush_all(window);
    MPI_Barrier(MPI_COMM_WORLD);
    long value, none = 0;
    MPI_Fetch_and_op(&none, &value, MPI_LONG, 0, 2, MPI_NO_OP, window);
    MPI_Win_flush(0, window);
    CHECK(value == (long)ROUNDS * size, "swaps: %ld instead of %ld", value, (long)ROUNDS * size);
    MPI_Win_unlock_all(window);
    MPI_Barrier(MPI_COMM_WORLD);
}

/* Sums, maxima and replacements of vectors at all ranks, and the previous values. */
static void accumulates(MPI_Win window, long *memory) {
    enum { VECTOR = 300 };
    set_up(window, memory, 4 * VECTOR);
    long sum[VECTOR], most[VECTOR], before[VECTOR];
    double real[VECTOR];
    for (int i = 0; i < VECTOR; i++) {
        sum[i] = rank + i;
        most[i] = (long)(rank + i) % size;
        real[i] = 0.5 * (rank + 1);
    }
    MPI_Win_lock_all(0, window);
    for (int to = 0; to < size; to++) {
        MPI_Accumulate(sum, VECTOR, MPI_LONG, to, 0, VECTOR, MPI_LONG, MPI_SUM, window);
        MPI_Accumulate(most, VECTOR, MPI_LONG, to, VECTOR, VECTOR, MPI_LONG, MPI_MAX, window);
        MPI_Accumulate(real, VECTOR, MPI_DOUBLE, to, 2 * VECTOR, VECTOR, MPI_DOUBLE, MPI_SUM, window);
        MPI_Get_accumulate(sum, VECTOR, MPI_LONG, before, VECTOR, MPI_LONG, to, 3 * VECTOR, VECTOR, MPI_LONG, MPI_SUM, window);
        MPI_Win_flush(to, window);
        for (int i = 0; i < VECTOR; i++)
            CHECK(before[i] >= 0 && before[i] <= (long)size * (size + i), "what was there: %ld", before[i]);
    }
    MPI_Win_unlock_all(window);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, window);
    long all = (long)size * (size - 1) / 2;
    for (int i = 0; i < VECTOR; i++) {
        double reals;
        memcpy(&reals, &memory[2 * VECTOR + i], sizeof reals);
        long expected = all + (long)size * i;
        CHECK(memory[i] == expected, "sum %d is %ld instead of %ld", i, memory[i], expected);
        CHECK(memory[VECTOR + i] == size - 1, "maximum %d is %ld", i, memory[VECTOR + i]);
        CHECK(reals == 0.25 * size * (size + 1), "sum %d of reals is %g", i, reals);
        CHECK(memory[3 * VECTOR + i] == expected, "fetched sum %d is %ld instead of %ld", i, memory[3 * VECTOR + i], expected);
    }
    MPI_Win_unlock(rank, window);
    MPI_Barrier(MPI_COMM_WORLD);
}

/* Requests end independently. */
static void requests(MPI_Win window, long *memory) {
    set_up(window, memory, 64);
    long out[16], in[16];
    for (int i = 0; i < 16; i++)
        out[i] = word(rank, 5, i);
    MPI_Win_lock_all(0, window);
    MPI_Request request;
    MPI_Rput(out, 16, MPI_LONG, right(), 0, 16, MPI_LONG, window, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Win_flush(right(), window);
    MPI_Rget(in, 16, MPI_LONG, right(), 0, 16, MPI_LONG, window, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    holds(in, rank, 5, 16, "request-based put and get");
    MPI_Win_unlock_all(window);
    MPI_Barrier(MPI_COMM_WORLD);
}

static void everything(MPI_Win window, long *memory, int with_swaps) {
    fences(window, memory);
    strided(window, memory);
    post_start(window, memory);
    locks(window, memory);
    tickets(window, memory);
    if (with_swaps)
        swaps(window, memory);
    accumulates(window, memory);
    requests(window, memory);
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int with_swaps = argc < 2 || strcmp(argv[1], "no-swap") != 0;
    messages();
    long *memory;
    MPI_Win window;
    MPI_Win_allocate(WORDS * sizeof *memory, sizeof *memory, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &window);
    everything(window, memory, with_swaps);
    MPI_Win_free(&window);
    memory = malloc(WORDS * sizeof *memory);
    MPI_Win_create(memory, WORDS * sizeof *memory, sizeof *memory, MPI_INFO_NULL, MPI_COMM_WORLD, &window);
    everything(window, memory, with_swaps);
    MPI_Win_free(&window);
    free(memory);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0)
        printf("mpi_onesided: messages and windows of %d processes are right\n", size);
    MPI_Finalize();
    return 0;
}
