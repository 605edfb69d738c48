/* Several threads use one endpoint at a time: atomics, injects, messages; one more reads the completions. */
#include <pthread.h>
#include <stdbool.h>

#include "check.h"

enum { THREADS = 4, TURNS = 500 };

static uint64_t key, ended[THREADS];

static void *post(void *number)
{
	uintptr_t me = (uintptr_t) number;
	uint64_t one = 1, before[2];
	for (int turn = 0; turn < TURNS; turn++) {
		ssize_t posted;
		while ((posted = fi_fetch_atomic(ep, &one, 1, NULL, before, NULL, peer, 0, key, FI_UINT64, FI_SUM,
				(void *) me)) == -FI_EAGAIN)
			;
		EXPECT(posted, 0);
		while ((posted = fi_inject_atomic(ep, &one, 1, peer, 64 * (1 + me), key, FI_UINT64, FI_SUM)) == -FI_EAGAIN)
			;
		EXPECT(posted, 0);
		while ((posted = fi_tinject(ep, &turn, sizeof turn, peer, me)) == -FI_EAGAIN)
			fi_cq_read(rxcq, NULL, 0);
		EXPECT(posted, 0);
		/* The fetched value is needed before the next turn overwrites it. */
		while (__atomic_load_n(&ended[me], __ATOMIC_ACQUIRE) <= (uint64_t) turn)
			usleep(10);
	}
	return NULL;
}

static void *collect(void *unused)
{
	(void) unused;
	for (int left = THREADS * TURNS; left > 0; left--)
		__atomic_fetch_add(&ended[(uintptr_t) next(txcq).op_context], 1, __ATOMIC_RELEASE);
	return NULL;
}

int main(int argc, char **argv)
{
	CHECK(argc == 4);
	directory = argv[1];
	bool server = strcmp(argv[2], "server") == 0;
	struct wishes wishes = { .caps = FI_ATOMIC | FI_RMA | FI_TAGGED, .wait = FI_WAIT_UNSPEC };
	open_endpoint(&wishes, NULL, 0);
	meet(argv[2], server ? "client" : "server");
	if (server) {
		uint64_t *memory = aligned_alloc(4096, 4096);
		memset(memory, 0, 4096);
		struct fid_mr *mr;
		EXPECT(fi_mr_reg(domain, memory, 4096, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 9, 0, &mr, NULL), 0);
		key = fi_mr_key(mr);
		show("key", &key, 8);
		int turns[THREADS] = { 0 }, got;
		for (int n = 0; n < THREADS * TURNS; n++) {
			EXPECT(fi_trecv(ep, &got, sizeof got, NULL, FI_ADDR_UNSPEC, 0, UINT64_MAX, NULL), 0);
			uint64_t from = next(rxcq).tag;
			CHECK(from < THREADS && got == turns[from]++);
		}
		char done;
		see("done", &done, 1);
		CHECK(memory[0] == THREADS * TURNS);
		for (int i = 0; i < THREADS; i++)
			CHECK(memory[8 * (1 + i)] == TURNS);
		EXPECT(fi_close(&mr->fid), 0);
	} else {
		see("key", &key, 8);
		pthread_t threads[THREADS], collector;
		CHECK(pthread_create(&collector, NULL, collect, NULL) == 0);
		for (uintptr_t i = 0; i < THREADS; i++)
			CHECK(pthread_create(&threads[i], NULL, post, (void *) i) == 0);
		for (int i = 0; i < THREADS; i++)
			CHECK(pthread_join(threads[i], NULL) == 0);
		CHECK(pthread_join(collector, NULL) == 0);
		/* Injects are behind the fenced read. */
		uint64_t value;
		struct iovec iov = { &value, 8 };
		struct fi_rma_iov remote = { 0, 8, key };
		struct fi_msg_rma read = { .msg_iov = &iov, .iov_count = 1, .addr = peer, .rma_iov = &remote, .rma_iov_count = 1 };
		POST(fi_readmsg(ep, &read, FI_FENCE));
		next(txcq);
		show("done", "", 1);
	}
	close_all();
	return 0;
}
