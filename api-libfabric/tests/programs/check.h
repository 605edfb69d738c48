/* Common part of the test programs: two separately started processes. They exchange their names by files. */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <rdma/fabric.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>

#define FAIL(...)                                                                                                       \
	do {                                                                                                            \
		fprintf(stderr, "%s:%d: ", __FILE__, __LINE__);                                                         \
		fprintf(stderr, __VA_ARGS__);                                                                           \
		fprintf(stderr, "\n");                                                                                  \
		exit(1);                                                                                                \
	} while (0)
#define CHECK(condition)                                                                                                \
	do {                                                                                                            \
		if (!(condition))                                                                                       \
			FAIL("%s", #condition);                                                                         \
	} while (0)
#define EXPECT(call, value)                                                                                             \
	do {                                                                                                            \
		long got_ = (long) (call), wanted_ = (long) (value);                                                    \
		if (got_ != wanted_)                                                                                    \
			FAIL("%s: %ld, not %ld", #call, got_, wanted_);                                                 \
	} while (0)

static const char *directory;

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec * 1e-9;
}

/* Shows bytes to the other side under a name. */
static inline void show(const char *name, const void *bytes, size_t len)
{
	char path[600], fresh[620];
	snprintf(path, sizeof path, "%s/%s", directory, name);
	snprintf(fresh, sizeof fresh, "%s.new", path);
	FILE *file = fopen(fresh, "w");
	CHECK(file && fwrite(bytes, 1, len, file) == len && fclose(file) == 0 && rename(fresh, path) == 0);
}

/* Waits for the bytes that the other side shows. */
static inline size_t see(const char *name, void *bytes, size_t room)
{
	char path[600];
	snprintf(path, sizeof path, "%s/%s", directory, name);
	for (double start = now(); now() - start < 60;) {
		FILE *file = fopen(path, "r");
		if (file) {
			size_t len = fread(bytes, 1, room, file);
			fclose(file);
			return len;
		}
		usleep(1000);
	}
	FAIL("%s does not come", name);
}

static struct fi_info *info;
static struct fid_fabric *fabric;
static struct fid_domain *domain;
static struct fid_av *av;
static struct fid_cq *txcq, *rxcq;
static struct fid_ep *ep;
static fi_addr_t peer;

struct wishes {
	uint64_t caps;
	int mr_mode;
	enum fi_wait_obj wait;
	uint64_t bind;
	uint64_t order;
	enum fi_progress progress;
};

static inline struct fi_info *hints_for(const struct wishes *wishes)
{
	struct fi_info *hints = fi_allocinfo();
	CHECK(hints);
	hints->caps = wishes->caps;
	hints->mode = FI_CONTEXT;
	hints->ep_attr->type = FI_EP_RDM;
	hints->domain_attr->mr_mode = wishes->mr_mode;
	hints->domain_attr->data_progress = wishes->progress;
	hints->tx_attr->msg_order = wishes->order;
	hints->fabric_attr->prov_name = strdup("unipgas");
	return hints;
}

static inline void open_endpoint(const struct wishes *wishes, struct fid_cntr *counter, uint64_t counted)
{
	struct fi_info *hints = hints_for(wishes);
	if (!info) {
		EXPECT(fi_getinfo(FI_VERSION(1, 9), NULL, NULL, 0, hints, &info), 0);
		EXPECT(fi_fabric(info->fabric_attr, &fabric, NULL), 0);
		EXPECT(fi_domain(fabric, info, &domain, NULL), 0);
	}
	fi_freeinfo(hints);
	struct fi_av_attr av_attr = { .type = FI_AV_TABLE };
	EXPECT(fi_av_open(domain, &av_attr, &av, NULL), 0);
	struct fi_cq_attr cq_attr = { .format = FI_CQ_FORMAT_TAGGED, .wait_obj = wishes->wait };
	EXPECT(fi_cq_open(domain, &cq_attr, &txcq, NULL), 0);
	EXPECT(fi_cq_open(domain, &cq_attr, &rxcq, NULL), 0);
	EXPECT(fi_endpoint(domain, info, &ep, NULL), 0);
	EXPECT(fi_enable(ep), -FI_ENOAV);
	EXPECT(fi_ep_bind(ep, &av->fid, 0), 0);
	EXPECT(fi_ep_bind(ep, &txcq->fid, FI_TRANSMIT | wishes->bind), 0);
	EXPECT(fi_ep_bind(ep, &rxcq->fid, FI_RECV), 0);
	if (counter)
		EXPECT(fi_ep_bind(ep, &counter->fid, counted), 0);
	EXPECT(fi_enable(ep), 0);
}

/* Shows the own name as `me`, and inserts the name of `other`. */
static inline void meet(const char *me, const char *other)
{
	char name[512];
	size_t len = sizeof name;
	EXPECT(fi_getname(&ep->fid, name, &len), 0);
	show(me, name, len);
	char theirs[512];
	CHECK(see(other, theirs, sizeof theirs) == len);
	EXPECT(fi_av_insert(av, theirs, 1, &peer, 0, NULL), 1);
}

/* The next completion of a queue; within 60 s. */
static inline struct fi_cq_tagged_entry next(struct fid_cq *cq)
{
	struct fi_cq_tagged_entry entry;
	for (double start = now(); now() - start < 60;) {
		ssize_t got = fi_cq_read(cq, &entry, 1);
		if (got == 1)
			return entry;
		if (got == -FI_EAVAIL) {
			struct fi_cq_err_entry error = { 0 };
			fi_cq_readerr(cq, &error, 0);
			FAIL("unexpected error %d (%s)", error.err, fi_cq_strerror(cq, error.prov_errno, NULL, NULL, 0));
		}
		EXPECT(got, -FI_EAGAIN);
	}
	FAIL("no completion");
}

/* The next failure of a queue. */
static inline struct fi_cq_err_entry next_error(struct fid_cq *cq)
{
	struct fi_cq_tagged_entry entry;
	struct fi_cq_err_entry error = { 0 };
	for (double start = now(); now() - start < 60;) {
		ssize_t got = fi_cq_read(cq, &entry, 1);
		if (got == -FI_EAVAIL) {
			EXPECT(fi_cq_readerr(cq, &error, 0), 1);
			return error;
		}
		EXPECT(got, -FI_EAGAIN);
	}
	FAIL("no error");
}

/* Repeats the call until it succeeds, with progress in between. */
#define POST(call)                                                                                                      \
	do {                                                                                                            \
		ssize_t posted_;                                                                                        \
		double start_ = now();                                                                                  \
		while ((posted_ = (call)) == -FI_EAGAIN && now() - start_ < 60)                                         \
			fi_cq_read(rxcq, NULL, 0);                                                                      \
		EXPECT(posted_, 0);                                                                                     \
	} while (0)

static inline void nothing(struct fid_cq *cq)
{
	struct fi_cq_tagged_entry entry;
	EXPECT(fi_cq_read(cq, &entry, 1), -FI_EAGAIN);
}

static inline void close_all(void)
{
	EXPECT(fi_close(&domain->fid), -FI_EBUSY);
	EXPECT(fi_close(&txcq->fid), -FI_EBUSY);
	EXPECT(fi_close(&ep->fid), 0);
	EXPECT(fi_close(&txcq->fid), 0);
	EXPECT(fi_close(&rxcq->fid), 0);
	EXPECT(fi_close(&av->fid), 0);
	EXPECT(fi_close(&domain->fid), 0);
	EXPECT(fi_close(&fabric->fid), 0);
	fi_freeinfo(info);
}
