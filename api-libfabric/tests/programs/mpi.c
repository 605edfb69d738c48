/* An MPI program, for MPI libraries that use libfabric: messages of all lengths, a reduction, atomics and puts on a window. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void demand(int condition, const char *what)
{
	if (!condition) {
		fprintf(stderr, "%s\n", what);
		MPI_Abort(MPI_COMM_WORLD, 1);
	}
}

int main(int argc, char **argv)
{
	MPI_Init(&argc, &argv);
	int rank, size;
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	int right = (rank + 1) % size, left = (rank + size - 1) % size;
	for (int len = 1; len <= 1 << 22; len *= 8) {
		char *out = malloc((size_t) len), *in = malloc((size_t) len);
		memset(out, rank + 1, (size_t) len);
		MPI_Status status;
		MPI_Sendrecv(out, len, MPI_CHAR, right, 3, in, len, MPI_CHAR, MPI_ANY_SOURCE, 3, MPI_COMM_WORLD, &status);
		demand(status.MPI_SOURCE == left && in[0] == left + 1 && in[len - 1] == left + 1, "a message is wrong");
		free(out);
		free(in);
	}
	double mine = rank, sum;
	MPI_Allreduce(&mine, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
	demand(sum == size * (size - 1) / 2.0, "the sum is wrong");
	long *words;
	MPI_Win window;
	MPI_Win_allocate(8 * (MPI_Aint) sizeof(long), sizeof(long), MPI_INFO_NULL, MPI_COMM_WORLD, &words, &window);
	memset(words, 0, 8 * sizeof(long));
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Win_lock_all(0, window);
	long one = 1, before, value = rank + 100;
	for (int turn = 0; turn < 200; turn++) {
		MPI_Fetch_and_op(&one, &before, MPI_LONG, 0, 0, MPI_SUM, window);
		MPI_Win_flush(0, window);
	}
	MPI_Put(&value, 1, MPI_LONG, right, 1, 1, MPI_LONG, window);
	MPI_Win_unlock_all(window);
	MPI_Barrier(MPI_COMM_WORLD);
	demand(words[1] == left + 100 && (rank != 0 || words[0] == 200 * size), "the window is wrong");
	MPI_Win_free(&window);
	MPI_Finalize();
	return 0;
}
