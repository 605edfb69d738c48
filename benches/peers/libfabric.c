/* A provider of libfabric between two processes that this program forks: writes, reads, atomics, messages. The target drives its
 * provider, which most need. PEER_PROVIDER names it (shm), PEER_COLUMN its column. */
#include "peer.h"
#include <rdma/fabric.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WINDOW = 65 << 20, KEY = 7 };

/* Data that each side sends to the other. */
struct hello {
    char name[256];
    size_t name_len;
    uint64_t base, key;
};

static const char *provider = "shm", *column = "libfabric";
static int rank, wire;
static char *base, *from;
static struct fid_ep *ep;
static struct fid_cq *cq;
static fi_addr_t peer;
static uint64_t peer_base, peer_key, result;
static void *desc, *result_desc;
/* Set by the side that measures when the other may stop driving its provider. */
static volatile uint64_t *shared;

static void die(const char *what, long code)
{
    fprintf(stderr, "libfabric: %s: %s\n", what, fi_strerror((int)-code));
    _exit(1);
}

static void must(const char *what, long code)
{
    if (code < 0)
        die(what, code);
}

/* One completion of any kind: its flags, or 0 when there is none; `data` gets remote completion data. */
static uint64_t look(uint64_t *data)
{
    struct fi_cq_data_entry entry;
    ssize_t n = fi_cq_read(cq, &entry, 1);
    if (n == 1) {
        if (entry.flags & FI_REMOTE_CQ_DATA)
            *data = entry.data;
        return entry.flags ? entry.flags : FI_SEND;
    }
    if (n == -FI_EAVAIL) {
        struct fi_cq_err_entry error;
        memset(&error, 0, sizeof error);
        fi_cq_readerr(cq, &error, 0);
        die("completion", -error.err);
    }
    if (n != -FI_EAGAIN)
        must("fi_cq_read", n);
    return 0;
}

static void step(void)
{
    uint64_t data;
    look(&data);
}

static void meet(void)
{
    static uint64_t turn;
    turn++;
    __atomic_fetch_add(&shared[0], 1, __ATOMIC_ACQ_REL);
    while (__atomic_load_n(&shared[0], __ATOMIC_ACQUIRE) < 2 * turn)
        step();
}

static double put_notice(size_t bytes)
{
    int each = bytes > 32768 ? 50 : 500;
    uint64_t round = 0, got = 0;
    long open = 0;
    double ns;
    meet();
    PEER_MEASURE(ns, each, {
        for (int i = 0; i < each; i++) {
            round++;
            for (int turn = 0; turn < 2; turn++) {
                if (turn == rank) {
                    long rc;
                    do {
                        rc = fi_writedata(ep, from, bytes, desc, round, peer, peer_base, peer_key, NULL);
                        if (rc == -FI_EAGAIN)
                            step();
                    } while (rc == -FI_EAGAIN);
                    must("fi_writedata", rc);
                    open++;
                } else {
                    while (got != round) {
                        uint64_t flags = look(&got);
                        if (flags && !(flags & FI_REMOTE_CQ_DATA))
                            open--;
                    }
                }
            }
        }
    });
    while (open > 0) {
        uint64_t flags = look(&got);
        if (flags && !(flags & FI_REMOTE_CQ_DATA))
            open--;
    }
    meet();
    return ns / 2;
}

static double fetch_add(void)
{
    double ns = 0;
    uint64_t one = 1, data;
    meet();
    if (rank == 0)
        PEER_MEASURE(ns, 500, {
            for (int i = 0; i < 500; i++) {
                long rc;
                while ((rc = fi_fetch_atomic(ep, &one, 1, NULL, &result, result_desc, peer, peer_base + 4096, peer_key,
                                             FI_UINT64, FI_SUM, NULL)) == -FI_EAGAIN)
                    step();
                must("fi_fetch_atomic", rc);
                while (!look(&data))
                    ;
            }
        });
    meet();
    return ns;
}

/* Waits until `open` operations have completed. */
static void drain(long open)
{
    uint64_t data;
    while (open > 0)
        open -= look(&data) != 0;
}

#define POST(call)                        \
    do {                                  \
        long rc_;                         \
        while ((rc_ = (call)) == -FI_EAGAIN) \
            step();                       \
        must(#call, rc_);                 \
    } while (0)

/* The initiator alone, one operation after the other. */
#define ALONE(ns, each, BODY)                 \
    do {                                      \
        meet();                               \
        if (rank == 0)                        \
            PEER_MEASURE(ns, each, {          \
                for (int i = 0; i < (each); i++) { \
                    BODY;                     \
                    drain(1);                 \
                }                             \
            });                               \
        meet();                               \
    } while (0)

static double compare_swap(void)
{
    double ns = 0;
    uint64_t value = 1, compare = 0;
    ALONE(ns, 500, {
        POST(fi_compare_atomic(ep, &value, 1, NULL, &compare, NULL, &result, result_desc, peer, peer_base + 4096, peer_key,
                               FI_UINT64, FI_CSWAP, NULL));
    });
    return ns;
}

static double write_ns(void)
{
    double ns = 0;
    ALONE(ns, 500, { POST(fi_write(ep, from, 8, desc, peer, peer_base, peer_key, NULL)); });
    return ns;
}

static double read_ns(size_t bytes)
{
    double ns = 1;
    int each = peer_each(bytes);
    ALONE(ns, each, { POST(fi_read(ep, from, bytes, desc, peer, peer_base, peer_key, NULL)); });
    return ns;
}

static double sums_ns(size_t bytes)
{
    double ns = 1;
    size_t count = bytes / 8;
    memset(from, 0, bytes);
    ALONE(ns, 200, { POST(fi_atomic(ep, from, count, desc, peer, peer_base + 8192, peer_key, FI_DOUBLE, FI_SUM, NULL)); });
    return ns;
}

/* Injected additions; the last word is that of an addition that is waited for, and finds them all. */
static double inject_ns(void)
{
    enum { EACH = 2000 };
    double ns = 1;
    uint64_t one = 1, none = 0;
    meet();
    if (rank == 0) {
        uint64_t before;
        POST(fi_fetch_atomic(ep, &none, 1, NULL, &result, result_desc, peer, peer_base + 16384, peer_key, FI_UINT64, FI_SUM,
                             NULL));
        drain(1);
        before = result;
        PEER_MEASURE(ns, EACH, {
            for (int i = 0; i < EACH; i++)
                POST(fi_inject_atomic(ep, &one, 1, peer, peer_base + 16384, peer_key, FI_UINT64, FI_SUM));
            POST(fi_fetch_atomic(ep, &none, 1, NULL, &result, result_desc, peer, peer_base + 16384, peer_key, FI_UINT64,
                                 FI_SUM, NULL));
            drain(1);
        });
        /* Not before the provider has carried out what it was given. */
        for (int tries = 0; result - before != (uint64_t)(peer_batches() + 1) * EACH; tries++) {
            if (tries == 1000000)
                die("additions were lost", -FI_EIO);
            POST(fi_fetch_atomic(ep, &none, 1, NULL, &result, result_desc, peer, peer_base + 16384, peer_key, FI_UINT64,
                                 FI_SUM, NULL));
            drain(1);
        }
    }
    meet();
    return ns;
}

/* Ping-pong of messages; waits at the end for operations that are not complete. */
static double messages_ns(size_t bytes, int tagged)
{
    enum { TAG = 0x1234 };
    double ns;
    long open = 0;
    uint64_t data;
    meet();
    PEER_MEASURE(ns, 500, {
        for (int i = 0; i < 500; i++) {
            if (tagged)
                POST(fi_trecv(ep, base, bytes, NULL, FI_ADDR_UNSPEC, TAG, 0, NULL));
            else
                POST(fi_recv(ep, base, bytes, NULL, FI_ADDR_UNSPEC, NULL));
            for (int turn = 0; turn < 2; turn++) {
                if (turn == rank) {
                    if (tagged)
                        POST(fi_tsend(ep, from, bytes, desc, peer, TAG, NULL));
                    else
                        POST(fi_send(ep, from, bytes, desc, peer, NULL));
                    open++;
                } else {
                    uint64_t flags;
                    while (!((flags = look(&data)) & FI_RECV))
                        open -= flags != 0;
                }
            }
        }
    });
    drain(open);
    meet();
    return ns / 2;
}

static double puts_ns(size_t bytes, int each, size_t window)
{
    double ns = 1;
    uint64_t data;
    meet();
    if (rank == 0)
        PEER_MEASURE(ns, each, {
            int done = 0;
            for (int i = 0; i < each; i++) {
                long rc;
                while ((rc = fi_write(ep, from, bytes, desc, peer, peer_base + i * bytes % window, peer_key, NULL)) ==
                       -FI_EAGAIN)
                    done += look(&data) != 0;
                must("fi_write", rc);
                done += look(&data) != 0;
            }
            while (done < each)
                done += look(&data) != 0;
        });
    meet();
    return ns;
}

static struct fid_mr *reg(struct fid_domain *domain, struct fi_info *info, void *at, size_t len, uint64_t key)
{
    struct fid_mr *mr;
    must("fi_mr_reg", fi_mr_reg(domain, at, len, FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE, 0,
                                info->domain_attr->mr_mode & FI_MR_PROV_KEY ? 0 : key, 0, &mr, NULL));
    return mr;
}

static void set_up(void)
{
    struct fi_info *hints = fi_allocinfo(), *info;
    struct fid_fabric *fabric;
    struct fid_domain *domain;
    struct fid_av *av;
    struct fid_mr *mr;
    struct fi_cq_attr cq_attr = {.format = FI_CQ_FORMAT_DATA, .size = 4096};
    struct fi_av_attr av_attr = {.type = FI_AV_TABLE};
    struct hello mine, theirs;
    char service[32];

    hints->ep_attr->type = FI_EP_RDM;
    hints->caps = FI_RMA | FI_ATOMIC | FI_MSG | FI_TAGGED;
    hints->fabric_attr->prov_name = strdup(provider);
    hints->domain_attr->mr_mode = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
    snprintf(service, sizeof service, "peer-%d", (int)getpid());
    /* The shm provider is found by a name, others by an address. */
    if (!strcmp(provider, "shm"))
        must("fi_getinfo", fi_getinfo(FI_VERSION(1, 11), service, NULL, FI_SOURCE, hints, &info));
    else
        must("fi_getinfo", fi_getinfo(FI_VERSION(1, 11), strncmp(provider, "tcp", 3) ? NULL : "127.0.0.1", NULL,
                                      strncmp(provider, "tcp", 3) ? 0 : FI_SOURCE, hints, &info));
    must("fi_fabric", fi_fabric(info->fabric_attr, &fabric, NULL));
    must("fi_domain", fi_domain(fabric, info, &domain, NULL));
    must("fi_cq_open", fi_cq_open(domain, &cq_attr, &cq, NULL));
    must("fi_av_open", fi_av_open(domain, &av_attr, &av, NULL));
    must("fi_endpoint", fi_endpoint(domain, info, &ep, NULL));
    must("fi_ep_bind", fi_ep_bind(ep, &av->fid, 0));
    must("fi_ep_bind", fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV));
    must("fi_enable", fi_enable(ep));
    base = aligned_alloc(4096, WINDOW);
    from = aligned_alloc(4096, WINDOW);
    memset(base, 0, WINDOW);
    memset(from, 1, WINDOW);
    mr = reg(domain, info, base, WINDOW, KEY);
    desc = fi_mr_desc(reg(domain, info, from, WINDOW, KEY + 1));
    result_desc = fi_mr_desc(reg(domain, info, &result, sizeof result, KEY + 2));

    memset(&mine, 0, sizeof mine);
    mine.name_len = sizeof mine.name;
    must("fi_getname", fi_getname(&ep->fid, mine.name, &mine.name_len));
    mine.base = info->domain_attr->mr_mode & FI_MR_VIRT_ADDR ? (uint64_t)(uintptr_t)base : 0;
    mine.key = fi_mr_key(mr);
    if (write(wire, &mine, sizeof mine) != sizeof mine || read(wire, &theirs, sizeof theirs) != sizeof theirs)
        die("the two processes cannot talk", -FI_EIO);
    if (fi_av_insert(av, theirs.name, 1, &peer, 0, NULL) != 1)
        die("fi_av_insert", -FI_EINVAL);
    peer_base = theirs.base;
    peer_key = theirs.key;
}

int main(int argc, char **argv)
{
    int ends[2], status = 0;
    pid_t child;
    peer_quick = argc > 1 && atoi(argv[1]);
    if (getenv("PEER_PROVIDER"))
        provider = getenv("PEER_PROVIDER");
    if (getenv("PEER_COLUMN"))
        column = getenv("PEER_COLUMN");
    shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED || socketpair(AF_UNIX, SOCK_STREAM, 0, ends))
        die("set-up", -FI_ENOMEM);
    child = fork();
    if (child < 0)
        die("fork", -FI_ENOMEM);
    rank = child == 0;
    wire = ends[rank];
    close(ends[1 - rank]);
    peer_pin(rank);
    set_up();
    for (int i = 2; i < argc; i++) {
        char metric[32];
        int processes;
        size_t bytes;
        double value = 0;
        if (!peer_case(argv[i], metric, &processes, &bytes) || processes != 2)
            continue;
        if (!strcmp(metric, "put_notice"))
            value = put_notice(bytes);
        else if (!strcmp(metric, "fetch_add"))
            value = fetch_add();
        else if (!strcmp(metric, "fi_fetch_add"))
            value = fetch_add();
        else if (!strcmp(metric, "fi_compare_swap"))
            value = compare_swap();
        else if (!strcmp(metric, "fi_inject_atomic"))
            value = 1e3 / inject_ns();
        else if (!strcmp(metric, "fi_sum"))
            value = bytes / sums_ns(bytes);
        else if (!strcmp(metric, "fi_write"))
            value = write_ns();
        else if (!strcmp(metric, "fi_write_bandwidth"))
            value = bytes / puts_ns(bytes, peer_each(bytes), bytes);
        else if (!strcmp(metric, "fi_read_bandwidth"))
            value = bytes / read_ns(bytes);
        else if (!strcmp(metric, "fi_message"))
            value = messages_ns(bytes, 0);
        else if (!strcmp(metric, "fi_tagged"))
            value = messages_ns(bytes, 1);
        else if (!strcmp(metric, "put_rate"))
            value = 1e3 / puts_ns(8, 4096, 4096);
        else if (!strcmp(metric, "bandwidth"))
            value = bytes / puts_ns(bytes, peer_each(bytes), bytes);
        else
            continue;
        if (rank == 0)
            peer_say(metric, 2, bytes, column, value);
    }
    meet();
    /* Closing the endpoint removes the provider's shared memory. */
    fi_close(&ep->fid);
    if (rank)
        _exit(0);
    waitpid(child, &status, 0);
    return status != 0;
}
