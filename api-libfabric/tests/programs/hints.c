/* fi_getinfo(3): the result satisfies the hints, or there is no result. */
#include "check.h"
#include <sys/wait.h>

static int ask(void (*change)(struct fi_info *), uint32_t version, struct fi_info **found)
{
	struct fi_info *hints = fi_allocinfo();
	hints->fabric_attr->prov_name = strdup("unipgas");
	if (change)
		change(hints);
	int answer = fi_getinfo(version, NULL, NULL, 0, hints, found);
	fi_freeinfo(hints);
	return answer;
}

static void refused(void (*change)(struct fi_info *))
{
	struct fi_info *found;
	EXPECT(ask(change, FI_VERSION(1, 17), &found), -FI_ENODATA);
}

static void stream(struct fi_info *h) { h->ep_attr->type = FI_EP_MSG; }
static void datagram(struct fi_info *h) { h->ep_attr->type = FI_EP_DGRAM; }
static void multicast(struct fi_info *h) { h->caps = FI_MULTICAST; }
static void remote(struct fi_info *h) { h->caps = FI_MSG | FI_REMOTE_COMM; }
static void inject(struct fi_info *h) { h->tx_attr->inject_size = 1 << 20; }
static void iov(struct fi_info *h) { h->tx_attr->iov_limit = 100; }
static void contexts(struct fi_info *h) { h->ep_attr->tx_ctx_cnt = 2; }
static void receivers(struct fi_info *h) { h->ep_attr->rx_ctx_cnt = 2; }
static void shared(struct fi_info *h) { h->ep_attr->rx_ctx_cnt = FI_SHARED_CONTEXT; }
static void protocol(struct fi_info *h) { h->ep_attr->protocol = FI_PROTO_SHM; }
static void sockaddr(struct fi_info *h) { h->addr_format = FI_SOCKADDR_IN; }
static void text(struct fi_info *h) { h->addr_format = FI_ADDR_STR; }
static void domain_name(struct fi_info *h) { h->domain_attr->name = strdup("mlx5_0"); }
static void fabric_name(struct fi_info *h) { h->fabric_attr->name = strdup("10.0.0.0/8"); }
static void key_size(struct fi_info *h) { h->domain_attr->mr_key_size = 16; }
static void strange(struct fi_info *h) { h->domain_attr->threading = 77; }

static void ours(struct fi_info *h)
{
	h->domain_attr->name = strdup("unipgas");
	h->ep_attr->type = FI_EP_RDM;
	h->caps = FI_ATOMIC | FI_RMA | FI_MSG | FI_TAGGED;
	h->mode = FI_CONTEXT;
	h->domain_attr->threading = FI_THREAD_DOMAIN;
	h->domain_attr->data_progress = FI_PROGRESS_AUTO;
	h->domain_attr->av_type = FI_AV_MAP;
	h->domain_attr->mr_mode =
		FI_MR_LOCAL | FI_MR_ENDPOINT | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_VIRT_ADDR | FI_MR_RAW;
	h->tx_attr->msg_order = FI_ORDER_STRICT;
	h->tx_attr->op_flags = FI_DELIVERY_COMPLETE;
}

static void atomics(struct fi_info *h) { h->caps = FI_ATOMIC | FI_READ | FI_WRITE; }
static void virtual(struct fi_info *h) { h->domain_attr->mr_mode = FI_MR_VIRT_ADDR; }
static void basic(struct fi_info *h) { h->domain_attr->mr_mode = FI_MR_BASIC; }

/* At level debug, libfabric's log lines name the hint that does not match. */
static void explained(void)
{
	int ends[2];
	CHECK(pipe(ends) == 0);
	pid_t child = fork();
	if (child == 0) {
		dup2(ends[1], 2);
		setenv("FI_LOG_LEVEL", "debug", 1);
		setenv("FI_LOG_PROV", "unipgas", 1);
		struct fi_info *found;
		_exit(ask(datagram, FI_VERSION(1, 17), &found) == -FI_ENODATA && ask(inject, FI_VERSION(1, 17), &found) == -FI_ENODATA ? 0 : 1);
	}
	close(ends[1]);
	FILE *lines = fdopen(ends[0], "r");
	char line[4096];
	const char *wanted[] = { "Unsupported ep_attr->type", "Supported: FI_EP_RDM", "Requested: FI_EP_DGRAM",
		"Unsupported tx_attr->inject_size", "Supported: ", "Requested: 1048576" };
	size_t seen = 0;
	while (fgets(line, sizeof line, lines))
		if (seen < sizeof wanted / sizeof *wanted && strstr(line, wanted[seen]))
			seen++;
	int status;
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	EXPECT(seen, sizeof wanted / sizeof *wanted);
	fclose(lines);
}

int main(void)
{
	explained();
	struct fi_info *found, *all;
	EXPECT(fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, NULL, &all), 0);
	int times = 0;
	for (struct fi_info *i = all; i; i = i->next)
		times += strstr(i->fabric_attr->prov_name, "unipgas") != NULL;
	EXPECT(times, 1);
	fi_freeinfo(all);
	void (*bad[])(struct fi_info *) = { stream, datagram, multicast, inject, iov, contexts, receivers, protocol,
		sockaddr, domain_name, fabric_name, key_size, strange };
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
		refused(bad[i]);
	EXPECT(fi_getinfo(FI_VERSION(1, 17), "no.such.machine.invalid", "1", 0, NULL, &found) == 0 &&
		strstr(found->fabric_attr->prov_name, "unipgas") != NULL, 0);
	/* A server and its client find each other by node and service. Names may be strings (FI_ADDR_STR). */
	EXPECT(ask(text, FI_VERSION(1, 17), &found), 0);
	CHECK(found->addr_format == FI_ADDR_STR && strcmp(found->src_addr, "fi_unipgas://") == 0);
	fi_freeinfo(found);
	for (int side = 0; side < 2; side++) {
		struct fi_info *hints = fi_allocinfo();
		hints->fabric_attr->prov_name = strdup("unipgas");
		hints->addr_format = FI_ADDR_STR;
		EXPECT(fi_getinfo(FI_VERSION(1, 17), side ? "127.0.0.1" : NULL, "7471", side ? 0 : FI_SOURCE, hints, &found), 0);
		char *end = side ? found->dest_addr : found->src_addr;
		size_t size = side ? found->dest_addrlen : found->src_addrlen;
		CHECK(size == strlen(end) + 1 && strcmp(end, "fi_unipgas://:7471") == 0);
		fi_freeinfo(found);
		fi_freeinfo(hints);
	}
	/* Peers of other hosts are offered only to a program or a user that names the provider. */
	EXPECT(ask(remote, FI_VERSION(1, 17), &found), 0);
	CHECK((found->caps & (FI_LOCAL_COMM | FI_REMOTE_COMM)) == (FI_LOCAL_COMM | FI_REMOTE_COMM));
	fi_freeinfo(found);
	for (int named = 0; named < 2; named++) {
		struct fi_info *hints = fi_allocinfo();
		remote(hints);
		if (named)
			setenv("FI_PROVIDER", "tcp,unipgas", 1);
		int answer = fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, hints, &found);
		times = 0;
		for (struct fi_info *i = answer ? NULL : found; i; i = i->next)
			times += strstr(i->fabric_attr->prov_name, "unipgas") != NULL;
		EXPECT(times, named);
		if (!answer)
			fi_freeinfo(found);
		fi_freeinfo(hints);
	}
	unsetenv("FI_PROVIDER");
	uint32_t versions[] = { FI_VERSION(1, 5), FI_VERSION(1, 9), FI_VERSION(1, 17) };
	for (int v = 0; v < 3; v++) {
		EXPECT(ask(ours, versions[v], &found), 0);
		CHECK(!found->next && found->mode == 0 && found->ep_attr->type == FI_EP_RDM);
		uint64_t caps = FI_ATOMIC | FI_RMA | FI_MSG | FI_TAGGED | FI_SEND | FI_RECV | FI_REMOTE_READ | FI_REMOTE_WRITE;
		CHECK((found->caps & caps) == caps);
		CHECK(found->domain_attr->mr_mode == (FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_VIRT_ADDR));
		CHECK(found->domain_attr->threading == FI_THREAD_DOMAIN && found->domain_attr->av_type == FI_AV_MAP);
		CHECK(found->domain_attr->data_progress == FI_PROGRESS_AUTO);
		CHECK(found->tx_attr->msg_order == FI_ORDER_STRICT && found->tx_attr->op_flags == FI_DELIVERY_COMPLETE);
		CHECK(strcmp(found->fabric_attr->prov_name, "unipgas") == 0);
		fi_freeinfo(found);
	}
	EXPECT(ask(atomics, FI_VERSION(1, 9), &found), 0);
	CHECK((found->caps & (FI_MSG | FI_TAGGED | FI_RMA | FI_REMOTE_READ)) == 0 && (found->caps & FI_ATOMIC));
	fi_freeinfo(found);
	EXPECT(ask(shared, FI_VERSION(1, 9), &found), 0);
	CHECK(found->ep_attr->rx_ctx_cnt == FI_SHARED_CONTEXT);
	fi_freeinfo(found);
	EXPECT(ask(virtual, FI_VERSION(1, 9), &found), 0);
	EXPECT(found->domain_attr->mr_mode, FI_MR_VIRT_ADDR);
	fi_freeinfo(found);
	EXPECT(ask(basic, FI_VERSION(1, 4), &found), 0);
	EXPECT(found->domain_attr->mr_mode, FI_MR_BASIC);
	fi_freeinfo(found);
	EXPECT(ask(NULL, FI_VERSION(1, 4), &found), 0);
	EXPECT(found->domain_attr->mr_mode, FI_MR_SCALABLE);
	fi_freeinfo(found);

	/* Functions that are not offered; event queues; address vectors. */
	struct wishes wishes = { .caps = FI_MSG | FI_RMA };
	open_endpoint(&wishes, NULL, 0);
	struct fid_ep *alias = NULL, *other = NULL;
	struct fid_eq *eq = NULL;
	struct fid_av *vector = NULL;
	struct fid_pep *passive;
	struct fid_stx *stx;
	struct fid_wait *set;
	struct fid_poll *pollset;
	struct fid_cq *queue;
	EXPECT(fi_passive_ep(fabric, info, &passive, NULL), -FI_ENOSYS);
	EXPECT(fi_scalable_ep(domain, info, &other, NULL), -FI_ENOSYS);
	EXPECT(fi_stx_context(domain, NULL, &stx, NULL), 0);
	EXPECT(fi_close(&stx->fid), 0);
	EXPECT(fi_wait_open(fabric, &(struct fi_wait_attr){ .wait_obj = FI_WAIT_FD }, &set), -FI_ENOSYS);
	EXPECT(fi_wait_open(fabric, &(struct fi_wait_attr){ .wait_obj = FI_WAIT_UNSPEC }, &set), 0);
	EXPECT(fi_wait(set, 0), -FI_ETIMEDOUT);
	EXPECT(fi_close(&set->fid), 0);
	EXPECT(fi_poll_open(domain, &(struct fi_poll_attr){ 0 }, &pollset), 0);
	EXPECT(fi_close(&pollset->fid), 0);
	EXPECT(fi_cq_open(domain, &(struct fi_cq_attr){ .format = 77 }, &queue, NULL), -FI_EINVAL);
	EXPECT(fi_cq_open(domain, &(struct fi_cq_attr){ .wait_obj = FI_WAIT_MUTEX_COND }, &queue, NULL), -FI_ENOSYS);
	EXPECT(fi_connect(ep, NULL, NULL, 0), -FI_ENOSYS);
	EXPECT(fi_accept(ep, NULL, 0), -FI_ENOSYS);
	EXPECT(fi_enable(ep), -FI_EOPBADSTATE);
	EXPECT(fi_ep_bind(ep, &av->fid, 0), -FI_EOPBADSTATE);
	EXPECT(fi_ep_bind(ep, NULL, 0), -FI_EINVAL);
	EXPECT(fi_endpoint(domain, info, &other, NULL), 0);
	char byte;
	EXPECT(fi_send(other, &byte, 1, NULL, 0, NULL), -FI_EOPBADSTATE);
	EXPECT(fi_ep_bind(other, &txcq->fid, 0), -FI_EBADFLAGS);
	EXPECT(fi_close(&other->fid), 0);
	size_t len = 4;
	char name[512];
	EXPECT(fi_getname(&ep->fid, name, &len), -FI_ETOOSMALL);
	EXPECT(fi_getname(&ep->fid, name, &len), 0);
	fi_addr_t addresses[3];
	char two[1024];
	memcpy(two, name, len);
	memset(two + len, 0, len);
	int errors[2];
	EXPECT(fi_av_insert(av, two, 2, addresses, FI_SYNC_ERR, errors), 1);
	CHECK(addresses[0] == 0 && addresses[1] == FI_ADDR_NOTAVAIL && errors[0] == 0 && errors[1] == FI_EINVAL);
	size_t got = sizeof two;
	EXPECT(fi_av_lookup(av, 0, two, &got), 0);
	CHECK(got == len && memcmp(two, name, len) == 0);
	EXPECT(fi_av_lookup(av, 5, two, &got), -FI_EINVAL);
	got = sizeof two;
	CHECK(fi_av_straddr(av, name, two, &got) == two && strncmp(two, "fi_unipgas://", 13) == 0 && got == strlen(two) + 1);
	/* A message of the endpoint to itself, by an alias; then the address is removed. */
	EXPECT(fi_ep_alias(ep, &alias, FI_TRANSMIT | FI_DELIVERY_COMPLETE), 0);
	char in = 0;
	EXPECT(fi_recv(ep, &in, 1, NULL, FI_ADDR_UNSPEC, &in), 0);
	byte = 42;
	EXPECT(fi_send(alias, &byte, 1, NULL, 0, &byte), 0);
	CHECK(next(rxcq).op_context == &in && in == 42 && next(txcq).op_context == &byte);
	EXPECT(fi_close(&alias->fid), 0);
	EXPECT(fi_av_remove(av, addresses, 1, 0), 0);
	EXPECT(fi_av_remove(av, addresses, 1, 0), -FI_EINVAL);
	EXPECT(fi_send(ep, &byte, 1, NULL, 0, &byte), -FI_EINVAL);
	EXPECT(fi_setopt(&ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &len, sizeof len), 0);
	size_t value = 0, size = sizeof value;
	EXPECT(fi_getopt(&ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &value, &size), 0);
	CHECK(value == len);
	EXPECT(fi_getopt(&ep->fid, FI_OPT_ENDPOINT, 999, &value, &size), -FI_ENOPROTOOPT);
	uint64_t flags = FI_TRANSMIT | FI_INJECT_COMPLETE;
	EXPECT(fi_control(&ep->fid, FI_SETOPSFLAG, &flags), 0);
	flags = FI_TRANSMIT;
	EXPECT(fi_control(&ep->fid, FI_GETOPSFLAG, &flags), 0);
	EXPECT(flags, FI_INJECT_COMPLETE);
	/* Selective completion, and the formats of completions. Entries of the formats are prefixes of each other. */
	struct fid_cq *quiet, *rest;
	struct fid_cntr *counter;
	enum fi_cq_format formats[] = { FI_CQ_FORMAT_CONTEXT, FI_CQ_FORMAT_MSG, FI_CQ_FORMAT_DATA };
	size_t sizes[] = { sizeof(struct fi_cq_entry), sizeof(struct fi_cq_msg_entry), sizeof(struct fi_cq_data_entry) };
	for (int f = 0; f < 3; f++) {
		struct fid_av *own;
		EXPECT(fi_cq_open(domain, &(struct fi_cq_attr){ .format = formats[f], .size = 2 }, &quiet, NULL), 0);
		EXPECT(fi_cq_open(domain, &(struct fi_cq_attr){ .format = formats[f] }, &rest, NULL), 0);
		EXPECT(fi_cntr_open(domain, NULL, &counter, NULL), 0);
		EXPECT(fi_av_open(domain, NULL, &own, NULL), 0);
		EXPECT(fi_endpoint(domain, info, &other, NULL), 0);
		EXPECT(fi_ep_bind(other, &own->fid, 0), 0);
		EXPECT(fi_ep_bind(other, &quiet->fid, FI_TRANSMIT | FI_SELECTIVE_COMPLETION), 0);
		EXPECT(fi_ep_bind(other, &rest->fid, FI_RECV), 0);
		EXPECT(fi_ep_bind(other, &counter->fid, FI_SEND), 0);
		EXPECT(fi_ep_bind(other, &counter->fid, FI_REMOTE_WRITE), 0);
		EXPECT(fi_enable(other), 0);
		EXPECT(fi_av_insert(own, name, 1, NULL, 0, NULL), 1);
		struct fi_msg msg = { .msg_iov = &(struct iovec){ &byte, 1 }, .iov_count = 1, .addr = 0, .context = &msg, .data = 6 };
		EXPECT(fi_send(other, &byte, 1, NULL, 0, &byte), 0);
		EXPECT(fi_cntr_wait(counter, 1, 10000), 0);
		EXPECT(fi_cntr_wait(counter, 2, 10), -FI_ETIMEDOUT);
		char entries[3 * 48];
		memset(entries, 0x77, sizeof entries);
		EXPECT(fi_cq_read(quiet, entries, 3), -FI_EAGAIN);
		EXPECT(fi_cq_sread(quiet, entries, 1, NULL, 0), -FI_EINVAL);
		EXPECT(fi_sendmsg(other, &msg, FI_COMPLETION | FI_INJECT), 0);
		EXPECT(fi_sendmsg(other, &msg, FI_COMPLETION | FI_REMOTE_CQ_DATA), 0);
		/* The queue is full. */
		EXPECT(fi_sendmsg(other, &msg, FI_COMPLETION), -FI_EAGAIN);
		EXPECT(fi_cq_read(quiet, entries, 3), 2);
		CHECK(*(void **) entries == &msg && *(void **) (entries + sizes[f]) == &msg && entries[2 * sizes[f]] == 0x77);
		for (int n = 0; n < 3; n++) {
			EXPECT(fi_recv(ep, &in, 1, NULL, FI_ADDR_UNSPEC, &in), 0);
			next(rxcq);
		}
		EXPECT(fi_close(&other->fid), 0);
		EXPECT(fi_close(&quiet->fid), 0);
		EXPECT(fi_close(&rest->fid), 0);
		EXPECT(fi_close(&counter->fid), 0);
		EXPECT(fi_close(&own->fid), 0);
	}
	/* An asynchronous address vector reports to an event queue. */
	EXPECT(fi_eq_open(fabric, &(struct fi_eq_attr){ .wait_obj = FI_WAIT_UNSPEC }, &eq, NULL), 0);
	uint32_t event;
	struct fi_eq_entry entry;
	EXPECT(fi_eq_read(eq, &event, &entry, sizeof entry, 0), -FI_EAGAIN);
	EXPECT(fi_eq_sread(eq, &event, &entry, sizeof entry, 10, 0), -FI_EAGAIN);
	EXPECT(fi_av_open(domain, &(struct fi_av_attr){ .flags = FI_EVENT }, &vector, NULL), 0);
	EXPECT(fi_av_insert(vector, name, 1, addresses, 0, &len), -FI_ENOEQ);
	EXPECT(fi_av_bind(vector, &eq->fid, 0), 0);
	EXPECT(fi_av_insert(vector, name, 1, addresses, 0, &len), 0);
	EXPECT(fi_eq_sread(eq, &event, &entry, sizeof entry, 1000, 0), sizeof entry);
	CHECK(event == FI_AV_COMPLETE && entry.fid == &vector->fid && entry.context == &len && entry.data == 1);
	EXPECT(fi_close(&eq->fid), -FI_EBUSY);
	EXPECT(fi_close(&vector->fid), 0);
	EXPECT(fi_close(&eq->fid), 0);
	close_all();
	return 0;
}
