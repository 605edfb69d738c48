/* Messages with and without tags: matching, lengths, completion data, sources, peeks, claims, cancellation, truncation, death. */
#include <signal.h>
#include <stdbool.h>

#include "check.h"

#define LONG (3 * 1024 * 1024)

static char *out, *in;

static void fill(char *bytes, size_t len, int seed)
{
	for (size_t i = 0; i < len; i++)
		bytes[i] = (char) (i * 13 + i / 509 + (size_t) seed);
}

static void expect_filled(const char *bytes, size_t len, int seed)
{
	for (size_t i = 0; i < len; i++)
		if (bytes[i] != (char) (i * 13 + i / 509 + (size_t) seed))
			FAIL("byte %zu of %zu is wrong", i, len);
}

/* A wait for one queue makes progress on both. */
static struct fi_cq_tagged_entry sent(void) { return next(txcq); }
static struct fi_cq_tagged_entry received(void) { return next(rxcq); }

static const size_t lens[] = { 0, 1, 32, 33, 1000, 4096, 8192, 8193, 65536, 1000000, LONG };
enum { LENS = sizeof lens / sizeof *lens };

/* With automatic progress a long message arrives while its receiver makes no call. */
static void automatic(bool is_server)
{
	char seen;
	if (is_server) {
		EXPECT(fi_trecv(ep, in, LONG, NULL, peer, 1, 0, &seen), 0);
		show("posted", "", 1);
		see("sent", &seen, 1);
		CHECK(next(rxcq).len == LONG);
		expect_filled(in, LONG, 3);
	} else {
		see("posted", &seen, 1);
		fill(out, LONG, 3);
		EXPECT(fi_tsend(ep, out, LONG, NULL, peer, 1, NULL), 0);
		sent();
		show("sent", "", 1);
	}
}

/* One buffer for many messages, then another one. */
static void several(bool is_server)
{
	enum { MESSAGES = 40, BUFFER = 1000, LEAST = 200 };
	char seen;
	if (!is_server) {
		see("multi", &seen, 1);
		for (int i = 0; i < MESSAGES; i++) {
			fill(out, 50 + (size_t) i, i);
			POST(fi_inject(ep, out, 50 + (size_t) i, peer));
		}
		see("multi.done", &seen, 1);
		return;
	}
	size_t least = LEAST;
	EXPECT(fi_setopt(&ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &least, sizeof least), 0);
	struct iovec whole = { in, BUFFER };
	struct fi_msg msg = { .msg_iov = &whole, .iov_count = 1, .addr = FI_ADDR_UNSPEC, .context = in };
	EXPECT(fi_recvmsg(ep, &msg, FI_MULTI_RECV), 0);
	show("multi", "", 1);
	char *at = in;
	int buffers = 0;
	for (int i = 0; i < MESSAGES; i++) {
		struct fi_cq_tagged_entry entry = received();
		size_t len = 50 + (size_t) i;
		CHECK(entry.op_context == in && entry.len == len && entry.buf == at);
		expect_filled(at, len, i);
		at += len;
		bool over = in + BUFFER - at < LEAST;
		CHECK(entry.flags == (FI_MSG | FI_RECV | (over ? FI_MULTI_RECV : 0)));
		if (over) {
			at = in;
			buffers++;
			EXPECT(fi_recvmsg(ep, &msg, FI_MULTI_RECV), 0);
		}
	}
	CHECK(buffers >= 3);
	EXPECT(fi_cancel(&ep->fid, in), 0);
	CHECK(next_error(rxcq).err == FI_ECANCELED);
	show("multi.done", "", 1);
}

static void client(void)
{
	for (int i = 0; i < LENS; i++) {
		fill(out, lens[i], i);
		POST(fi_send(ep, out, lens[i], NULL, peer, &in[i]));
		struct fi_cq_tagged_entry entry = sent();
		CHECK(entry.op_context == &in[i] && entry.flags == (FI_MSG | FI_SEND));
		POST(fi_tsend(ep, out, lens[i], NULL, peer, 100 + (uint64_t) i, &in[i]));
		entry = sent();
		CHECK(entry.op_context == &in[i] && entry.flags == (FI_TAGGED | FI_SEND));
	}
	/* In parts, with data, synchronous. */
	fill(out, 100000, 50);
	struct iovec parts[3] = { { out, 7 }, { out + 7, 50000 }, { out + 50007, 49993 } };
	POST(fi_sendv(ep, parts, NULL, 3, peer, NULL));
	sent();
	struct fi_msg_tagged msg = { .msg_iov = parts, .iov_count = 1, .addr = peer, .tag = 5, .context = &msg, .data = 99 };
	POST(fi_tsendmsg(ep, &msg, FI_REMOTE_CQ_DATA | FI_DELIVERY_COMPLETE | FI_COMPLETION));
	CHECK(sent().op_context == &msg);
	POST(fi_senddata(ep, out, 8, NULL, 0xfedcba9876543210, peer, NULL));
	sent();
	POST(fi_tsenddata(ep, out, 8, NULL, 0, peer, 6, NULL));
	sent();
	for (uint64_t i = 0; i < 1000; i++) {
		POST(fi_tinject(ep, &i, 8, peer, i));
		if (i % 10 == 0)
			POST(fi_injectdata(ep, &i, 8, i, peer));
	}
	nothing(txcq);
	EXPECT(fi_inject(ep, out, info->tx_attr->inject_size + 1, peer), -FI_EMSGSIZE);
	/* Messages for the peeks. */
	fill(out, 20000, 60);
	POST(fi_tsend(ep, out, 20000, NULL, peer, 7000, NULL));
	POST(fi_tsend(ep, out, 500, NULL, peer, 7001, NULL));
	POST(fi_tsend(ep, out, 500, NULL, peer, 7002, NULL));
	POST(fi_tsend(ep, out, 500, NULL, peer, 7003, NULL));
	for (int i = 0; i < 4; i++)
		sent();
	/* No message matches this receive. It fails when the peer dies. */
	char seen;
	see("server.ready", &seen, 1);
	POST(fi_trecv(ep, in, 100, NULL, peer, 9999, 0, &seen));
	show("die", "", 1);
	struct fi_cq_tagged_entry entry;
	struct fi_cq_err_entry error = { 0 };
	ssize_t got;
	double start = now();
	while ((got = fi_cq_sread(rxcq, &entry, 1, NULL, 500)) == -FI_EAGAIN && now() - start < 30)
		;
	EXPECT(got, -FI_EAVAIL);
	EXPECT(fi_cq_readerr(rxcq, &error, 0), 1);
	CHECK(error.err == FI_ECONNRESET && error.op_context == &seen);
	ssize_t posted = fi_send(ep, out, LONG, NULL, peer, &posted);
	EXPECT(posted, 0);
	EXPECT(next_error(txcq).err, FI_ECONNRESET);
}

static void server(void)
{
	for (int i = 0; i < LENS; i++) {
		memset(in, 0, lens[i]);
		memset(out, 0, lens[i]);
		/* Long messages are sent when they are received. */
		POST(fi_trecv(ep, in, LONG, NULL, i % 2 ? FI_ADDR_UNSPEC : peer, 0, UINT64_MAX, &in[i]));
		POST(fi_recv(ep, out, LONG, NULL, peer, &out[i]));
		for (int n = 0; n < 2; n++) {
			struct fi_cq_tagged_entry entry = received();
			CHECK(entry.len == lens[i]);
			if (entry.flags == (FI_TAGGED | FI_RECV))
				CHECK(entry.op_context == &in[i] && entry.tag == 100 + (uint64_t) i);
			else
				CHECK(entry.flags == (FI_MSG | FI_RECV) && entry.op_context == &out[i]);
		}
		expect_filled(in, lens[i], i);
		expect_filled(out, lens[i], i);
	}
	struct iovec parts[2] = { { in, 99000 }, { in + 99000, 2000 } };
	memset(in, 0, 101000);
	POST(fi_recvv(ep, parts, NULL, 2, peer, NULL));
	CHECK(received().len == 100000);
	expect_filled(in, 100000, 50);
	/* A message longer than the buffer. */
	memset(in, 1, 16);
	POST(fi_trecv(ep, in, 4, NULL, peer, 5, 0, in));
	struct fi_cq_err_entry error = next_error(rxcq);
	CHECK(error.err == FI_ETRUNC && error.olen == 3 && error.len == 4 && error.op_context == in && in[4] == 1);
	CHECK(error.data == 99 && (error.flags & FI_REMOTE_CQ_DATA) && error.tag == 5);
	expect_filled(in, 4, 50);
	POST(fi_recv(ep, in, 8, NULL, peer, NULL));
	fi_addr_t source;
	struct fi_cq_tagged_entry entry;
	ssize_t got;
	while ((got = fi_cq_readfrom(rxcq, &entry, 1, &source)) == -FI_EAGAIN)
		;
	CHECK(got == 1 && source == peer && entry.data == 0xfedcba9876543210);
	CHECK(entry.flags == (FI_MSG | FI_RECV | FI_REMOTE_CQ_DATA));
	POST(fi_trecv(ep, in, 8, NULL, peer, 6, 0, NULL));
	entry = received();
	CHECK(entry.flags == (FI_TAGGED | FI_RECV | FI_REMOTE_CQ_DATA) && entry.data == 0);
	/* Receives by tag in any order; messages with the same tag stay in order. */
	uint64_t value;
	for (uint64_t i = 0; i < 1000; i += 10) {
		POST(fi_recv(ep, &value, 8, NULL, FI_ADDR_UNSPEC, NULL));
		entry = received();
		CHECK(value == i && entry.data == i);
	}
	for (uint64_t i = 0; i < 1000; i++) {
		uint64_t tag = i ^ 1;
		POST(fi_trecv(ep, &value, 8, NULL, peer, tag, 0, NULL));
		entry = received();
		CHECK(value == tag && entry.tag == tag);
	}
	/* Peeks. */
	struct fi_msg_tagged peek = { .addr = peer, .tag = 7003, .context = &peek };
	for (double start = now();;) {
		CHECK(now() - start < 60);
		EXPECT(fi_trecvmsg(ep, &peek, FI_PEEK), 0);
		got = fi_cq_read(rxcq, &entry, 1);
		if (got == 1)
			break;
		EXPECT(got, -FI_EAVAIL);
		EXPECT(fi_cq_readerr(rxcq, &error, 0), 1);
		CHECK(error.err == FI_ENOMSG && error.op_context == &peek);
	}
	CHECK(entry.op_context == &peek && entry.len == 500 && entry.tag == 7003);
	/* Claims, and receives of claimed messages; both ways to discard. */
	struct fi_context claim, other;
	struct iovec whole = { in, 30000 };
	struct fi_msg_tagged keep = { .msg_iov = &whole, .iov_count = 1, .addr = peer, .tag = 7000, .context = &claim };
	EXPECT(fi_trecvmsg(ep, &keep, FI_PEEK | FI_CLAIM), 0);
	CHECK(received().len == 20000);
	EXPECT(fi_trecvmsg(ep, &keep, FI_PEEK), 0);
	EXPECT(next_error(rxcq).err, FI_ENOMSG);
	memset(in, 0, 20000);
	EXPECT(fi_trecvmsg(ep, &keep, FI_CLAIM), 0);
	entry = received();
	CHECK(entry.op_context == &claim && entry.len == 20000);
	expect_filled(in, 20000, 60);
	EXPECT(fi_trecvmsg(ep, &keep, FI_CLAIM), -FI_EINVAL);
	keep.tag = 7001;
	EXPECT(fi_trecvmsg(ep, &keep, FI_PEEK | FI_DISCARD), 0);
	received();
	EXPECT(fi_trecvmsg(ep, &keep, FI_PEEK), 0);
	EXPECT(next_error(rxcq).err, FI_ENOMSG);
	keep.tag = 7002;
	keep.context = &other;
	EXPECT(fi_trecvmsg(ep, &keep, FI_PEEK | FI_CLAIM), 0);
	received();
	EXPECT(fi_trecvmsg(ep, &keep, FI_CLAIM | FI_DISCARD), 0);
	CHECK(received().op_context == &other);
	EXPECT(fi_trecvmsg(ep, &keep, FI_DISCARD), -FI_EBADFLAGS);
	/* Cancellation. */
	EXPECT(fi_trecv(ep, in, 8, NULL, peer, 8000, 0, &claim), 0);
	EXPECT(fi_recv(ep, in, 8, NULL, peer, &other), 0);
	EXPECT(fi_cancel(&ep->fid, &claim), 0);
	error = next_error(rxcq);
	CHECK(error.err == FI_ECANCELED && error.op_context == &claim && error.flags == (FI_TAGGED | FI_RECV));
	EXPECT(fi_cancel(&ep->fid, &claim), -FI_ENOENT);
	EXPECT(fi_cancel(&ep->fid, &other), 0);
	CHECK(next_error(rxcq).op_context == &other);
	EXPECT(fi_recv(ep, NULL, 8, NULL, peer, NULL), -FI_EINVAL);
	EXPECT(fi_recv(ep, in, 8, NULL, 99, NULL), -FI_EINVAL);
	EXPECT(fi_send(ep, in, 8, NULL, 99, NULL), -FI_EINVAL);
	nothing(rxcq);
	show("server.ready", "", 1);
	char seen;
	see("die", &seen, 1);
	usleep(20000);
	raise(SIGKILL);
}

int main(int argc, char **argv)
{
	CHECK(argc == 4);
	directory = argv[1];
	bool is_server = strcmp(argv[2], "server") == 0;
	struct wishes wishes = { .caps = FI_MSG | FI_TAGGED | FI_DIRECTED_RECV | FI_SOURCE | FI_MULTI_RECV, .wait = FI_WAIT_UNSPEC,
		.order = atoi(argv[3]) ? FI_ORDER_STRICT : 0, .progress = atoi(argv[3]) ? FI_PROGRESS_AUTO : FI_PROGRESS_UNSPEC };
	open_endpoint(&wishes, NULL, 0);
	meet(argv[2], is_server ? "client" : "server");
	out = malloc(LONG);
	in = malloc(LONG);
	if (atoi(argv[3]))
		automatic(is_server);
	several(is_server);
	if (is_server)
		server();
	client();
	close_all();
	return 0;
}
