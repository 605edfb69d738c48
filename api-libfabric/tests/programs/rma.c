/* Remote memory access: all calls, all ways to name memory, completions, counters, and errors. */
#include <poll.h>
#include <signal.h>
#include <stdbool.h>

#include "check.h"

#define ROOM (256 * 1024)

static struct fid_cntr *counter;
static uint64_t key, base;
static char *memory;

static void exchange(const char *me, const char *other, struct fid_mr *mr)
{
	bool virtual = info->domain_attr->mr_mode & (FI_MR_VIRT_ADDR | FI_MR_BASIC);
	char name[64];
	uint64_t own[2] = { fi_mr_key(mr), virtual ? (uintptr_t) memory : 0 }, theirs[2];
	snprintf(name, sizeof name, "%s.key", me);
	show(name, own, sizeof own);
	snprintf(name, sizeof name, "%s.key", other);
	see(name, theirs, sizeof theirs);
	key = theirs[0];
	base = theirs[1];
}

static void fill(char *bytes, size_t len, int seed)
{
	for (size_t i = 0; i < len; i++)
		bytes[i] = (char) (i * 7 + i / 251 + (size_t) seed);
}

static void expect_filled(const char *bytes, size_t len, int seed)
{
	for (size_t i = 0; i < len; i++)
		if (bytes[i] != (char) (i * 7 + i / 251 + (size_t) seed))
			FAIL("byte %zu of %zu is wrong", i, len);
}

static void client(void)
{
	static char out[ROOM], in[ROOM];
	uint64_t count = 0;
	size_t lens[] = { 1, 3, 8, 64, 1000, 4096, 65536, ROOM };
	for (size_t i = 0; i < sizeof lens / sizeof *lens; i++) {
		size_t len = lens[i];
		fill(out, len, (int) i);
		EXPECT(fi_write(ep, out, len, NULL, peer, base + ROOM - len, key, &out[i]), 0);
		struct fi_cq_tagged_entry entry = next(txcq);
		CHECK(entry.op_context == &out[i] && entry.flags == (FI_RMA | FI_WRITE));
		memset(in, 0, len);
		EXPECT(fi_read(ep, in, len, NULL, peer, base + ROOM - len, key, &in[i]), 0);
		entry = next(txcq);
		CHECK(entry.op_context == &in[i] && entry.flags == (FI_RMA | FI_READ));
		expect_filled(in, len, (int) i);
		count += 2;
	}
	/* Vectors with different boundaries at both sides. */
	fill(out, 9000, 42);
	struct iovec from[3] = { { out, 10 }, { out + 10, 0 }, { out + 10, 8990 } };
	EXPECT(fi_writev(ep, from, NULL, 3, peer, base, key, NULL), 0);
	next(txcq);
	struct iovec to[2] = { { in, 4000 }, { in + 4000, 5000 } };
	memset(in, 0, 9000);
	EXPECT(fi_readv(ep, to, NULL, 2, peer, base, key, NULL), 0);
	next(txcq);
	expect_filled(in, 9000, 42);
	struct fi_rma_iov remote[2] = { { base + 20000, 7000, key }, { base + 100, 2000, key } };
	struct fi_msg_rma msg = { .msg_iov = from, .iov_count = 3, .addr = peer, .rma_iov = remote, .rma_iov_count = 2,
		.context = &msg };
	EXPECT(fi_writemsg(ep, &msg, FI_DELIVERY_COMPLETE), 0);
	CHECK(next(txcq).op_context == &msg);
	memset(in, 0, 9000);
	msg.msg_iov = to;
	msg.iov_count = 2;
	POST(fi_readmsg(ep, &msg, FI_FENCE));
	next(txcq);
	expect_filled(in, 9000, 42);
	count += 4;
	/* Injects have no completions, but count. */
	for (int i = 0; i < 100; i++) {
		uint64_t value = 1000 + (uint64_t) i;
		ssize_t sent;
		while ((sent = fi_inject_write(ep, &value, 8, peer, base + 8 * (size_t) i, key)) == -FI_EAGAIN)
			nothing(txcq);
		EXPECT(sent, 0);
		count++;
	}
	EXPECT(fi_cntr_wait(counter, count, 60000), 0);
	CHECK(fi_cntr_read(counter) == count && fi_cntr_readerr(counter) == 0);
	EXPECT(fi_read(ep, in, 800, NULL, peer, base, key, NULL), 0);
	next(txcq);
	count++;
	for (uint64_t i = 0; i < 100; i++)
		CHECK(memcmp(in + 8 * i, &(uint64_t){ 1000 + i }, 8) == 0);
	/* Remote completion data. */
	fill(out, 5000, 1);
	EXPECT(fi_writedata(ep, out, 5000, NULL, 0x1122334455667788, peer, base, key, NULL), 0);
	next(txcq);
	EXPECT(fi_inject_writedata(ep, out, 16, 77, peer, base + 8000, key), 0);
	struct fi_msg_rma data = { .msg_iov = from, .iov_count = 1, .addr = peer,
		.rma_iov = &(struct fi_rma_iov){ base + 9000, 10, key }, .rma_iov_count = 1, .data = 0 };
	EXPECT(fi_writemsg(ep, &data, FI_REMOTE_CQ_DATA | FI_COMPLETION), 0);
	next(txcq);
	count += 3;
	/* More notices than the target's queue holds, before the target reads it. */
	for (uint64_t i = 0; i < 6000; i++) {
		ssize_t sent;
		while ((sent = fi_inject_writedata(ep, &i, 8, i, peer, base + 16384, key)) == -FI_EAGAIN) {
			nothing(txcq);
			usleep(100);
			if (i > 4000)
				show("flood", "", 1);
		}
		EXPECT(sent, 0);
		count++;
	}
	show("flood", "", 1);
	EXPECT(fi_cntr_wait(counter, count, 60000), 0);
	/* Errors. */
	struct fi_cq_err_entry error;
	EXPECT(fi_write(ep, out, 100, NULL, peer, base + ROOM - 99, key, &error), 0);
	error = next_error(txcq);
	CHECK(error.err == FI_EACCES && error.flags == (FI_RMA | FI_WRITE));
	EXPECT(fi_read(ep, in, 8, NULL, peer, base - 1, key, &in[5]), 0);
	error = next_error(txcq);
	CHECK(error.err == FI_EACCES && error.op_context == &in[5]);
	EXPECT(fi_read(ep, in, 8, NULL, peer, UINT64_MAX - 3, key, NULL), 0);
	EXPECT(next_error(txcq).err, FI_EACCES);
	EXPECT(fi_write(ep, out, 8, NULL, peer, base, 0x1234567812345678, NULL), 0);
	EXPECT(next_error(txcq).err, FI_ENOKEY);
	char text[40];
	CHECK(strlen(fi_cq_strerror(txcq, FI_ENOKEY, NULL, text, sizeof text)) > 0 && text[0]);
	CHECK(fi_cntr_readerr(counter) == 4);
	/* If one part cannot be written, no part is written. */
	struct fi_rma_iov bad[2] = { { base, 8, key }, { base, 2, key + 99 } };
	uint64_t zero[2] = { 0 };
	struct fi_msg_rma torn = { .msg_iov = &(struct iovec){ zero, 10 }, .iov_count = 1, .addr = peer, .rma_iov = bad,
		.rma_iov_count = 2 };
	EXPECT(fi_writemsg(ep, &torn, 0), 0);
	EXPECT(next_error(txcq).err, FI_ENOKEY);
	EXPECT(fi_read(ep, in, 5000, NULL, peer, base, key, NULL), 0);
	next(txcq);
	expect_filled(in, 5000, 1);
	/* Arguments. */
	EXPECT(fi_write(ep, out, 8, NULL, 99, base, key, NULL), -FI_EINVAL);
	EXPECT(fi_write(ep, out, 8, NULL, FI_ADDR_UNSPEC, base, key, NULL), -FI_EINVAL);
	EXPECT(fi_write(ep, NULL, 8, NULL, peer, base, key, NULL), -FI_EINVAL);
	EXPECT(fi_inject_write(ep, out, info->tx_attr->inject_size + 1, peer, base, key), -FI_EMSGSIZE);
	EXPECT(fi_writev(ep, from, NULL, info->tx_attr->iov_limit + 1, peer, base, key, NULL), -FI_EINVAL);
	EXPECT(fi_writemsg(ep, NULL, 0), -FI_EINVAL);
	EXPECT(fi_writemsg(ep, &torn, 1ULL << 60), -FI_EBADFLAGS);
	torn.rma_iov_count = 1;
	EXPECT(fi_writemsg(ep, &torn, 0), -FI_EINVAL);
	nothing(txcq);
	/* Closed memory, and a reused key. */
	show("close", "", 1);
	char closed;
	see("closed", &closed, 1);
	EXPECT(fi_read(ep, in, 8, NULL, peer, base, key, NULL), 0);
	EXPECT(next_error(txcq).err, FI_ENOKEY);
	show("again", "", 1);
	uint64_t fresh[2];
	see("server.again", fresh, sizeof fresh);
	EXPECT(fi_read(ep, in, 8, NULL, peer, fresh[1], fresh[0], NULL), 0);
	next(txcq);
	CHECK(memcmp(in, "again!!", 8) == 0);
	/* A peer that dies. */
	show("die", "", 1);
	for (bool dead = false; !dead;) {
		struct fi_cq_tagged_entry entry;
		EXPECT(fi_write(ep, out, 8, NULL, peer, fresh[1], fresh[0], NULL), 0);
		ssize_t got;
		while ((got = fi_cq_sread(txcq, &entry, 1, NULL, 1000)) == -FI_EAGAIN)
			;
		if (got == -FI_EAVAIL) {
			EXPECT(fi_cq_readerr(txcq, &error, 0), 1);
			/* An ending process loses its memory first. */
			CHECK(error.err == FI_ECONNRESET || error.err == FI_ENOKEY);
			dead = error.err == FI_ECONNRESET;
		}
	}
	EXPECT(fi_write(ep, out, 8, NULL, peer, fresh[1], fresh[0] + 1, NULL), 0);
	EXPECT(next_error(txcq).err, FI_ECONNRESET);
}

static void server(struct fid_mr *mr)
{
	/* A wait by file descriptor. */
	int fd;
	EXPECT(fi_control(&rxcq->fid, FI_GETWAIT, &fd), 0);
	struct fi_cq_tagged_entry entry;
	struct fid *fids[] = { &rxcq->fid };
	for (;;) {
		ssize_t got = fi_cq_read(rxcq, &entry, 1);
		if (got == 1)
			break;
		EXPECT(got, -FI_EAGAIN);
		if (fi_trywait(fabric, fids, 1) == 0)
			CHECK(poll(&(struct pollfd){ .fd = fd, .events = POLLIN }, 1, 60000) == 1);
	}
	uint64_t flags = FI_RMA | FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA;
	CHECK(entry.flags == flags && entry.data == 0x1122334455667788 && entry.len == 5000);
	expect_filled(memory, 5000, 1);
	entry = next(rxcq);
	CHECK(entry.flags == flags && entry.data == 77 && entry.len == 16);
	fi_addr_t source;
	ssize_t got;
	while ((got = fi_cq_sreadfrom(rxcq, &entry, 1, &source, NULL, 60000)) == -FI_EAGAIN)
		;
	CHECK(got == 1 && entry.flags == flags && entry.data == 0 && entry.len == 10 && source == peer);
	char seen;
	see("flood", &seen, 1);
	for (uint64_t i = 0; i < 6000; i++) {
		entry = next(rxcq);
		CHECK(entry.data == i);
	}
	EXPECT(fi_cq_sread(rxcq, &entry, 1, NULL, 20), -FI_EAGAIN);
	see("close", &seen, 1);
	uint64_t own = fi_mr_key(mr);
	bool chosen = !(info->domain_attr->mr_mode & (FI_MR_PROV_KEY | FI_MR_BASIC));
	struct fid_mr *second;
	uint64_t access = FI_REMOTE_READ | FI_REMOTE_WRITE;
	if (chosen)
		EXPECT(fi_mr_reg(domain, memory, 8, access, 0, own, 0, &second, NULL), -FI_ENOKEY);
	EXPECT(fi_close(&mr->fid), 0);
	show("closed", "", 1);
	see("again", &seen, 1);
	strcpy(memory, "again!!");
	EXPECT(fi_mr_reg(domain, memory, 4096, access, 0, own, 0, &second, NULL), 0);
	bool virtual = info->domain_attr->mr_mode & (FI_MR_VIRT_ADDR | FI_MR_BASIC);
	uint64_t where[2] = { fi_mr_key(second), virtual ? (uintptr_t) memory : 0 };
	CHECK(chosen == (where[0] == own));
	show("server.again", where, sizeof where);
	see("die", &seen, 1);
	raise(SIGKILL);
}

int main(int argc, char **argv)
{
	CHECK(argc == 4);
	directory = argv[1];
	bool is_server = strcmp(argv[2], "server") == 0;
	struct wishes wishes = { .caps = FI_RMA | FI_SOURCE, .mr_mode = atoi(argv[3]), .wait = FI_WAIT_FD,
		.order = FI_ORDER_WAW | FI_ORDER_RAW };
	struct fi_info *hints = hints_for(&wishes);
	EXPECT(fi_getinfo(FI_VERSION(1, 9), NULL, NULL, 0, hints, &info), 0);
	fi_freeinfo(hints);
	CHECK(info && !info->next);
	EXPECT(fi_fabric(info->fabric_attr, &fabric, NULL), 0);
	EXPECT(fi_domain(fabric, info, &domain, NULL), 0);
	EXPECT(fi_cntr_open(domain, NULL, &counter, NULL), 0);
	open_endpoint(&wishes, counter, FI_READ | FI_WRITE);
	meet(argv[2], is_server ? "client" : "server");
	memory = aligned_alloc(4096, ROOM);
	struct fid_mr *mr;
	EXPECT(fi_mr_reg(domain, memory, ROOM, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 11, 0, &mr, NULL), 0);
	EXPECT(fi_mr_reg(domain, memory, 0, FI_REMOTE_READ, 0, 12, 0, &mr, NULL), -FI_EINVAL);
	exchange(argv[2], is_server ? "client" : "server", mr);
	/* The promised number of open regions, minus the regions above. Each can be closed. */
	if (!is_server) {
		size_t many = info->domain_attr->mr_cnt - 2;
		struct fid_mr **all = calloc(many, sizeof *all);
		for (size_t i = 0; i < many; i++)
			EXPECT(fi_mr_reg(domain, memory + i % 64 * 64, 64, FI_REMOTE_READ, 0, 1000 + i * 0x100000001, 0, &all[i], NULL), 0);
		for (size_t i = 0; i < many; i++)
			EXPECT(fi_close(&all[i]->fid), 0);
		free(all);
	}
	if (is_server)
		server(mr);
	client();
	EXPECT(fi_close(&mr->fid), 0);
	EXPECT(fi_close(&counter->fid), -FI_EBUSY);
	EXPECT(fi_close(&ep->fid), 0);
	EXPECT(fi_close(&counter->fid), 0);
	EXPECT(fi_close(&txcq->fid), 0);
	EXPECT(fi_close(&rxcq->fid), 0);
	EXPECT(fi_close(&av->fid), 0);
	EXPECT(fi_close(&domain->fid), 0);
	EXPECT(fi_close(&fabric->fid), 0);
	fi_freeinfo(info);
	return 0;
}
