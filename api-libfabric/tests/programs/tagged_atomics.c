/* Atomic operations on tagged receive buffers: results on both sides, buffers posted before and after, in parts, bad requests, death. */
#include <signal.h>
#include <stdbool.h>

#include "check.h"

enum { TAG = 70 };

static struct fi_msg_atomic message(struct fi_ioc *operand, struct fi_rma_ioc *target, enum fi_datatype type, enum fi_op op)
{
	struct fi_msg_atomic msg = { .msg_iov = operand, .iov_count = operand ? 1 : 0, .addr = peer, .rma_iov = target,
		.rma_iov_count = 1, .datatype = type, .op = op, .context = operand };
	return msg;
}

static void done(void *context, uint64_t kind)
{
	struct fi_cq_tagged_entry entry = next(txcq);
	CHECK(entry.op_context == context && entry.flags == (FI_ATOMIC | FI_TAGGED | kind));
}

static void refused(int errno_)
{
	EXPECT(next_error(txcq).err, errno_);
}

static void client(void)
{
	char seen;
	double doubles[4] = { 1, 2, 3, 4 };
	uint64_t value = 5, compare = 47, result[4] = { 0 };
	struct fi_ioc ones = { doubles, 4 }, one = { &value, 1 }, other = { &compare, 1 }, before = { result, 1 };
	struct fi_rma_ioc target = { 16, 4, TAG };
	/* A posted buffer. */
	see("posted", &seen, 1);
	struct fi_msg_atomic msg = message(&ones, &target, FI_DOUBLE, FI_SUM);
	EXPECT(fi_atomicmsg(ep, &msg, FI_TAGGED | FI_INJECT), 0);
	memset(doubles, 0, sizeof doubles);
	done(&ones, FI_WRITE);
	/* Buffers that are posted later, with another message between. */
	struct fi_rma_ioc word = { 8, 1, TAG + 1 };
	msg = message(&one, &word, FI_UINT64, FI_SUM);
	EXPECT(fi_fetch_atomicmsg(ep, &msg, &before, NULL, 1, FI_TAGGED), 0);
	EXPECT(fi_tsend(ep, &value, 8, NULL, peer, TAG + 2, NULL), 0);
	CHECK((next(txcq).flags & FI_SEND) != 0);
	show("asked", "", 1);
	done(&one, FI_READ);
	EXPECT(result[0], 42);
	word.key = TAG + 3;
	msg = message(&one, &word, FI_UINT64, FI_CSWAP);
	EXPECT(fi_compare_atomicmsg(ep, &msg, &other, NULL, 1, &before, NULL, 1, FI_TAGGED), 0);
	done(&one, FI_READ);
	EXPECT(result[0], 47);
	/* A buffer in parts, read as a whole. */
	struct fi_rma_ioc four = { 0, 4, TAG + 4 };
	struct fi_ioc all[2] = { { result, 1 }, { result + 1, 3 } };
	msg = message(NULL, &four, FI_UINT64, FI_ATOMIC_READ);
	EXPECT(fi_fetch_atomicmsg(ep, &msg, all, NULL, 2, FI_TAGGED), 0);
	done(NULL, FI_READ);
	for (uint64_t i = 0; i < 4; i++)
		EXPECT(result[i], i + 1);
	/* Out of bounds; not aligned. */
	word = (struct fi_rma_ioc){ 9 * 8, 1, TAG + 5 };
	msg = message(&one, &word, FI_UINT64, FI_SUM);
	EXPECT(fi_atomicmsg(ep, &msg, FI_TAGGED), 0);
	refused(FI_ETRUNC);
	word = (struct fi_rma_ioc){ 4, 1, TAG + 6 };
	EXPECT(fi_atomicmsg(ep, &msg, FI_TAGGED), 0);
	refused(FI_EINVAL);
	/* The other side discards the operation. */
	word = (struct fi_rma_ioc){ 0, 1, TAG + 7 };
	EXPECT(fi_atomicmsg(ep, &msg, FI_TAGGED), 0);
	refused(FI_ECANCELED);
	/* Queries and refusals that need no buffer of the peer. */
	struct fi_atomic_attr attr;
	EXPECT(fi_query_atomic(domain, FI_UINT64, FI_SUM, &attr, FI_TAGGED | FI_FETCH_ATOMIC), 0);
	CHECK(attr.size == 8 && attr.count >= 64);
	EXPECT(fi_query_atomic(domain, FI_DOUBLE, FI_BOR, &attr, FI_TAGGED), -FI_EOPNOTSUPP);
	static uint64_t many[4096];
	struct fi_ioc most = { many, attr.count + 1 };
	struct fi_rma_ioc large = { 0, attr.count + 1, TAG };
	msg = message(&most, &large, FI_UINT64, FI_SUM);
	EXPECT(fi_atomicmsg(ep, &msg, FI_TAGGED), -FI_EMSGSIZE);
	msg = message(&one, &word, FI_DOUBLE, FI_BOR);
	EXPECT(fi_atomicmsg(ep, &msg, FI_TAGGED), -FI_EOPNOTSUPP);
	/* The largest operation, and many operations that add to one counter. */
	large.count = most.count = attr.count;
	large.key = TAG + 8;
	msg = message(&most, &large, FI_UINT64, FI_ATOMIC_WRITE);
	for (size_t i = 0; i < attr.count; i++)
		many[i] = i;
	EXPECT(fi_atomicmsg(ep, &msg, FI_TAGGED), 0);
	done(&most, FI_WRITE);
	for (int i = 0; i < 100; i++) {
		word = (struct fi_rma_ioc){ 0, 1, TAG + 9 };
		msg = message(&one, &word, FI_UINT64, FI_SUM);
		EXPECT(fi_atomicmsg(ep, &msg, FI_TAGGED), 0);
	}
	for (int i = 0; i < 100; i++)
		done(&one, FI_WRITE);
	/* The peer dies and does not answer. */
	word.key = TAG + 10;
	EXPECT(fi_atomicmsg(ep, &msg, FI_TAGGED), 0);
	show("die", "", 1);
	struct fi_cq_tagged_entry entry;
	struct fi_cq_err_entry error = { 0 };
	ssize_t got;
	double start = now();
	while ((got = fi_cq_sread(txcq, &entry, 1, NULL, 500)) == -FI_EAGAIN && now() - start < 30)
		;
	EXPECT(got, -FI_EAVAIL);
	EXPECT(fi_cq_readerr(txcq, &error, 0), 1);
	CHECK(error.err == FI_ECONNRESET && error.op_context == &one);
}

static void post(void *buffer, size_t len, uint64_t tag)
{
	EXPECT(fi_trecv(ep, buffer, len, NULL, FI_ADDR_UNSPEC, tag, 0, buffer), 0);
}

static void operated(void *buffer, size_t len, uint64_t tag)
{
	struct fi_cq_tagged_entry entry = next(rxcq);
	CHECK(entry.op_context == buffer && entry.flags == (FI_ATOMIC | FI_TAGGED | FI_RECV));
	CHECK(entry.len == len && entry.tag == tag);
}

static void server(void)
{
	char seen;
	double doubles[6] = { 10, 10, 10, 10, 10, 10 };
	uint64_t words[8] = { 1, 42, 3, 4, 5, 6, 7, 8 }, value = 0, counter = 0;
	static uint64_t many[4096];
	post(doubles, sizeof doubles, TAG);
	show("posted", "", 1);
	operated(doubles, 32, TAG);
	for (int i = 0; i < 6; i++)
		CHECK(doubles[i] == (i < 2 ? 10 : 10 + i - 1));
	see("asked", &seen, 1);
	usleep(5000);
	post(&value, sizeof value, TAG + 2);
	struct fi_cq_tagged_entry entry = next(rxcq);
	CHECK(entry.flags == (FI_TAGGED | FI_RECV) && entry.len == 8 && value == 5);
	post(words, sizeof words, TAG + 1);
	operated(words, 8, TAG + 1);
	CHECK(words[0] == 1 && words[1] == 47 && words[2] == 3);
	post(words, sizeof words, TAG + 3);
	operated(words, 8, TAG + 3);
	EXPECT(words[1], 5);
	for (uint64_t i = 0; i < 8; i++)
		words[i] = i + 1;
	struct iovec parts[3] = { { words, 12 }, { (char *) words + 12, 4 }, { words + 2, 48 } };
	struct fi_msg_tagged whole = { .msg_iov = parts, .iov_count = 3, .addr = FI_ADDR_UNSPEC, .tag = TAG + 4, .context = parts };
	EXPECT(fi_trecvmsg(ep, &whole, 0), 0);
	operated(parts, 32, TAG + 4);
	post(words, sizeof words, TAG + 5);
	struct fi_cq_err_entry error = next_error(rxcq);
	CHECK(error.err == FI_ETRUNC && error.op_context == words && error.len == 0);
	post(words, sizeof words, TAG + 6);
	EXPECT(next_error(rxcq).err, FI_EINVAL);
	for (uint64_t i = 0; i < 8; i++)
		EXPECT(words[i], i + 1);
	/* Discards the operation. */
	struct fi_msg_tagged peek = { .addr = peer, .tag = TAG + 7, .context = &peek };
	ssize_t got;
	for (double start = now();;) {
		CHECK(now() - start < 60);
		EXPECT(fi_trecvmsg(ep, &peek, FI_PEEK | FI_DISCARD), 0);
		got = fi_cq_read(rxcq, &entry, 1);
		if (got == 1)
			break;
		EXPECT(fi_cq_readerr(rxcq, &error, 0), 1);
		EXPECT(error.err, FI_ENOMSG);
	}
	post(many, sizeof many, TAG + 8);
	CHECK(next(rxcq).len >= 64 * 8);
	for (uint64_t i = 0; i < 64; i++)
		EXPECT(many[i], i);
	for (int i = 0; i < 100; i++) {
		post(&counter, sizeof counter, TAG + 9);
		operated(&counter, 8, TAG + 9);
		EXPECT(counter, 5 * (i + 1));
	}
	/* If operations end later, the last answer needs progress on this side. */
	char path[600];
	snprintf(path, sizeof path, "%s/die", directory);
	for (double start = now(); access(path, F_OK) != 0;) {
		CHECK(now() - start < 60);
		nothing(rxcq);
	}
	usleep(20000);
	raise(SIGKILL);
}

int main(int argc, char **argv)
{
	CHECK(argc == 4);
	directory = argv[1];
	bool is_server = strcmp(argv[2], "server") == 0;
	struct wishes wishes = { .caps = FI_TAGGED | FI_ATOMIC, .wait = FI_WAIT_UNSPEC,
		.progress = atoi(argv[3]) ? FI_PROGRESS_AUTO : FI_PROGRESS_UNSPEC };
	open_endpoint(&wishes, NULL, 0);
	meet(argv[2], is_server ? "client" : "server");
	if (is_server)
		server();
	client();
	close_all();
	return 0;
}
