/* stack LIMIT: the first call of a thread takes at most LIMIT bytes of its stack. Some programs have threads with the smallest stack that POSIX allows. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sys/mman.h>

#include "check.h"

enum { SIZE = 1 << 20, PAINT = 0xa5 };

static uint64_t *memory, key, before, one = 1;
static struct fid_cntr *counter;
static unsigned char *stack;
static size_t depth;

#define CALLS                                                                                                           \
	CALL(write, fi_write(ep, memory, 8, NULL, peer, 0, key, NULL))                                                  \
	CALL(inject_write, fi_inject_write(ep, memory, 8, peer, 0, key))                                                \
	CALL(read, fi_read(ep, &before, 8, NULL, peer, 0, key, NULL))                                                   \
	CALL(atomic, fi_atomic(ep, &one, 1, NULL, peer, 0, key, FI_UINT64, FI_SUM, NULL))                               \
	CALL(fetch_atomic, fi_fetch_atomic(ep, &one, 1, NULL, &before, NULL, peer, 0, key, FI_UINT64, FI_SUM, NULL))    \
	CALL(send, fi_send(ep, &one, 8, NULL, peer, NULL))                                                              \
	CALL(recv, fi_recv(ep, &before, 8, NULL, FI_ADDR_UNSPEC, NULL))                                                 \
	CALL(tsend, fi_tsend(ep, &one, 8, NULL, peer, 7, NULL))                                                         \
	CALL(trecv, fi_trecv(ep, &before, 8, NULL, FI_ADDR_UNSPEC, 7, 0, NULL))                                         \
	CALL(cq_read, read_queue(txcq))                                                                                 \
	CALL(cq_read_rx, read_queue(rxcq))                                                                              \
	CALL(cq_sread, fi_cq_sread(txcq, &entry, 1, NULL, 0) < 0 ? 0 : 0)                                               \
	CALL(cntr_read, fi_cntr_read(counter) ? 0 : 0)                                                                  \
	CALL(cntr_wait, fi_cntr_wait(counter, UINT64_MAX, 0) ? 0 : 0)

static struct fi_cq_tagged_entry entry;

static ssize_t read_queue(struct fid_cq *cq)
{
	ssize_t got = fi_cq_read(cq, &entry, 1);
	return got == 1 || got == -FI_EAGAIN ? 0 : got;
}

#define CALL(name, call)                                                                                                \
	static ssize_t call_##name(void)                                                                                \
	{                                                                                                               \
		return call;                                                                                            \
	}
CALLS
#undef CALL

static const struct {
	const char *name;
	ssize_t (*call)(void);
} calls[] = {
#define CALL(name, call) { #name, call_##name },
	CALLS
};

static void take_all(void)
{
	while (fi_cq_read(txcq, &entry, 1) == 1 || fi_cq_read(rxcq, &entry, 1) == 1)
		;
}

/* Measures within the thread: the stack use of the thread's end does not count for the call. */
static void *measure(void *call)
{
	unsigned char here = 0, *first = stack;
	ssize_t got = ((ssize_t(*)(void)) call)();
	while (*first == PAINT)
		first++;
	depth = (size_t) (&here - first);
	return (void *) got;
}

int main(int argc, char **argv)
{
	CHECK(argc == 2);
	size_t limit = strtoul(argv[1], NULL, 0);
	struct wishes wishes = { .caps = FI_ATOMIC | FI_RMA | FI_MSG | FI_TAGGED, .wait = FI_WAIT_UNSPEC };
	open_endpoint(&wishes, NULL, 0);
	char name[512];
	size_t len = sizeof name;
	EXPECT(fi_getname(&ep->fid, name, &len), 0);
	EXPECT(fi_av_insert(av, name, 1, &peer, 0, NULL), 1);
	struct fi_cntr_attr attr = { .wait_obj = FI_WAIT_UNSPEC };
	EXPECT(fi_cntr_open(domain, &attr, &counter, NULL), 0);
	memory = aligned_alloc(4096, 4096);
	struct fid_mr *mr;
	EXPECT(fi_mr_reg(domain, memory, 4096, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 9, 0, &mr, NULL), 0);
	key = fi_mr_key(mr);
	stack = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
	CHECK(stack != MAP_FAILED);
	pthread_attr_t small;
	CHECK(pthread_attr_init(&small) == 0 && pthread_attr_setstack(&small, stack, SIZE) == 0);
	int deep = 0;
	for (size_t nth = 0; nth < sizeof calls / sizeof *calls; nth++) {
		/* The process's first contact with a peer and first lookup of a function happen outside the measured thread. */
		POST(calls[nth].call());
		take_all();
		void *got = NULL;
		pthread_t thread;
		do {
			take_all();
			memset(stack, PAINT, SIZE);
			CHECK(pthread_create(&thread, &small, measure, (void *) calls[nth].call) == 0);
			CHECK(pthread_join(thread, &got) == 0);
		} while ((ssize_t) got == -FI_EAGAIN);
		EXPECT((ssize_t) got, 0);
		printf("%-12s %6zu bytes of stack\n", calls[nth].name, depth);
		deep += depth > limit;
	}
	if (deep)
		FAIL("%d calls take more than %zu bytes", deep, limit);
	return 0;
}
