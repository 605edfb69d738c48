/*
 * A libfabric.so.1 in front of the one that STRICT_LIBFABRIC names: it answers as a provider with other demands would, and ends the process where one is
 * not kept. Below is a provider that demands nothing (tcp;ofi_rxm). For tests; tests/on-strict. STRICT has words with commas between them:
 *
 *   local virt allocated provkey endpoint raw   of fi_mr(3); keysize=N bytes
 *   context context2                            the provider has the context's memory until the end, and writes there
 *   inject=N max=N data=N tx=N rx=N av=N        limits
 *   waw=N                                       longer writes come later than what follows them; so do reads then
 *   unordered                                   writes and reads come later than what follows them, messages too
 *   nowait nocntr                               nothing to sleep on; no counters
 *   busy=N                                      every Nth operation is refused: -FI_EAGAIN
 *   norm                                        FI_RM_DISABLED
 *   rxdata                                      writes with data use up a receive buffer
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>

static void *real;
static int mr_mode;
static uint64_t context_mode;
static size_t keysize = 8, inject = -1, max = -1, data = 8, tx = -1, rx = -1, av_room = -1, waw = -1, busy;
static int unordered, nowait, nocntr, norm, rxdata;

/* Operations that endpoints of this process have taken; tests/programs/barriers.c looks. */
static size_t taken;
size_t strict_taken (void) { return __atomic_load_n (&taken, __ATOMIC_RELAXED); }
static void one_taken (ssize_t status) { __atomic_add_fetch (&taken, status == 0, __ATOMIC_RELAXED); }

/* Operations that come later, and receive buffers that writes with data use up. */
enum { LATER = 64, INLINE = 256, SPARE = 8 };

static void __attribute__ ((noreturn, format (printf, 1, 2))) broken (const char *format, ...)
{
  va_list list;
  va_start (list, format);
  fputs ("strict: ", stderr);
  vfprintf (stderr, format, list);
  fputs ("\n", stderr);
  abort ();
}

/* Whether `name` is a word of STRICT; its number, where it has one, is put to `number`. */
static int
word (const char *name, size_t *number)
{
  const char *at = getenv ("STRICT");
  const size_t len = strlen (name);
  for (; at != NULL && *at; at = *at ? at + (*at == ',') : at)
    {
      const size_t all = strcspn (at, ",");
      if (all >= len && strncmp (at, name, len) == 0 && (all == len) == (number == NULL) && (number == NULL || at[len] == '='))
        {
          if (number != NULL)
            *number = strtoull (at + len + 1, NULL, 0);
          return 1;
        }
      at += all;
    }
  return 0;
}

static void __attribute__ ((constructor)) begin (void)
{
  static const struct { const char *name; int bit; } modes[] = {
    { "local", FI_MR_LOCAL }, { "virt", FI_MR_VIRT_ADDR }, { "allocated", FI_MR_ALLOCATED },
    { "provkey", FI_MR_PROV_KEY }, { "endpoint", FI_MR_ENDPOINT }, { "raw", FI_MR_RAW },
  };
  const char *name = getenv ("STRICT_LIBFABRIC");
  real = dlopen (name ? name : "", RTLD_NOW | RTLD_LOCAL);
  if (name == NULL || real == NULL)
    broken ("STRICT_LIBFABRIC is no libfabric: %s", dlerror ());
  for (size_t i = 0; i < sizeof modes / sizeof *modes; i++)
    mr_mode |= word (modes[i].name, NULL) ? modes[i].bit : 0;
  context_mode = word ("context", NULL) ? FI_CONTEXT : word ("context2", NULL) ? FI_CONTEXT2 : 0;
  word ("keysize", &keysize), word ("inject", &inject), word ("max", &max), word ("data", &data);
  word ("tx", &tx), word ("rx", &rx), word ("av", &av_room), word ("waw", &waw), word ("busy", &busy);
  unordered = word ("unordered", NULL), nowait = word ("nowait", NULL), nocntr = word ("nocntr", NULL), norm = word ("norm", NULL);
  rxdata = word ("rxdata", NULL);
}

/* A function of the true library. */
#define REAL(function) ((__typeof__ (function) *)dlsym (real, #function))

/* Ours have the true object beside them. */
struct fabric { struct fid_fabric fid; struct fid_fabric *real; };
struct domain { struct fid_domain fid; struct fid_domain *real; };
struct av { struct fid_av fid; struct fid_av *real; size_t used; };
struct mr
{
  struct fid_mr fid;
  struct fid_mr *real;
  struct domain *domain;
  struct fi_mr_attr attr;
  struct iovec iov;
  int bound;
};
struct later { int age, write, inlined; uint64_t flags; struct fi_msg_rma msg; struct iovec iov; struct fi_rma_iov far; char bytes[INLINE]; };
struct ep
{
  struct fid_ep fid;
  struct fid_ep *real;
  struct cq *cq;
  pthread_mutex_t lock;
  int enabled, selective;
  uint64_t op_flags;
  size_t under_way, received, most, posts, receives, first, count, spares;
  void *spare[SPARE];
  struct later later[LATER];
};
struct cq { struct fid_cq fid; struct fid_cq *real; struct ep *ep; };

#define CLOSE(type)                                                                                                                                      \
  static int close_##type (struct fid *fid)                                                                                                              \
  {                                                                                                                                                      \
    struct type *one = (struct type *)fid;                                                                                                               \
    const int status = one->real ? fi_close (&one->real->fid) : 0;                                                                                       \
    if (status == 0)                                                                                                                                     \
      free (one);                                                                                                                                        \
    return status;                                                                                                                                       \
  }
CLOSE (fabric)
CLOSE (domain)
CLOSE (av)
CLOSE (mr)
CLOSE (cq)
CLOSE (ep)

static struct mr *
known (void *desc)
{
  struct mr *mr = desc;
  if (mr == NULL)
    broken ("FI_MR_LOCAL, and an operation without a descriptor");
  if (mr->fid.mem_desc != mr)
    broken ("a descriptor of no registration");
  return mr;
}

/* Memory of this process that an operation uses. */
static void
local (const void *at, size_t len, void *desc, uint64_t access)
{
  if (!(mr_mode & FI_MR_LOCAL) || len == 0)
    return;
  const struct mr *mr = known (desc);
  const char *begin = mr->iov.iov_base, *from = at;
  if (from < begin || from + len > begin + mr->iov.iov_len)
    broken ("FI_MR_LOCAL, and %zu bytes at %p, of which the registration of %zu at %p does not know", len, at, mr->iov.iov_len, mr->iov.iov_base);
  if ((mr->attr.access & access) != access)
    broken ("FI_MR_LOCAL, and memory registered for other operations");
  if (mr->real == NULL)
    broken ("FI_MR_ENDPOINT, and a registration that is not enabled");
}

static size_t words_of_context (void) { return context_mode == FI_CONTEXT2 ? 8 : 4; }
static uint64_t mark (const uint64_t *at) { return (uintptr_t)at ^ 0x5ca1ab1e0ddba11ull; }

static int
is_pending (const uint64_t *at)
{
  for (size_t i = 0; i < words_of_context (); i++)
    if (at[i] != mark (at + i))
      return 0;
  return 1;
}

/* The provider has the context from now on, */
static void
take (void *context)
{
  uint64_t *at = context;
  if (!context_mode)
    return;
  if (at == NULL)
    broken ("FI_CONTEXT, and an operation without a context");
  if (is_pending (at))
    broken ("FI_CONTEXT, and a context of two operations under way");
  for (size_t i = 0; i < words_of_context (); i++)
    at[i] = mark (at + i);
}

/* and gives it back. */
static void
give (void *context)
{
  uint64_t *at = context;
  if (!context_mode || at == NULL)
    return;
  if (!is_pending (at))
    broken ("FI_CONTEXT, and somebody has written to a context under way");
  memset (at, 0xee, 8 * words_of_context ());
}

static int
post_later (struct ep *ep, struct later *one)
{
  one->msg.msg_iov = &one->iov, one->msg.rma_iov = &one->far, one->msg.desc = NULL;
  if (one->inlined)
    one->iov.iov_base = one->bytes;
  return one->write ? fi_writemsg (ep->real, &one->msg, one->flags) : fi_readmsg (ep->real, &one->msg, one->flags);
}

/* Those that are old enough; the others too, if `all`. What has no way to its peer yet holds nobody else up: the peer may be dead. */
static void
go_on (struct ep *ep, int all)
{
  for (size_t left = ep->count; left > 0; left--)
    {
      struct later *first = &ep->later[ep->first];
      if (!all && --first->age > 0)
        return;
      const int status = post_later (ep, first);
      if (status != 0 && status != -FI_EAGAIN)
        broken ("what comes later is refused: %s", fi_strerror (-status));
      const struct later again = *first;
      ep->first = (ep->first + 1) % LATER;
      ep->count--;
      if (status != 0)
        ep->later[(ep->first + ep->count++) % LATER] = again;
    }
}

/* Whether something for this peer comes later. */
static int
comes_later (const struct ep *ep, fi_addr_t to)
{
  for (size_t i = 0; i < ep->count; i++)
    if (ep->later[(ep->first + i) % LATER].msg.addr == to)
      return 1;
  return 0;
}

/* Whether the operation is refused for now. */
static int
full (struct ep *ep, int completes)
{
  ep->posts++;
  return (busy && ep->posts % busy == 0) || (completes && ep->under_way >= tx) || ep->count == LATER;
}

static ssize_t
rma (struct ep *ep, int write, const struct fi_msg_rma *msg, uint64_t flags)
{
  const struct iovec *iov = msg->msg_iov;
  const size_t len = msg->iov_count ? iov->iov_len : 0;
  const int inlined = (flags & FI_INJECT) != 0, completes = !ep->selective || flags & FI_COMPLETION;
  if (msg->iov_count > 1 || msg->rma_iov_count > 1)
    broken ("more than one place");
  if (len > max)
    broken ("max_msg_size is %zu, and %zu bytes are %s", max, len, write ? "written" : "read");
  if (inlined && len > (inject < INLINE ? inject : INLINE))
    broken ("inject_size is %zu, and %zu bytes are to be taken in the call", inject, len);
  if (flags & FI_REMOTE_CQ_DATA && data == 0)
    broken ("cq_data_size is 0, and a write has data");
  if (mr_mode & FI_MR_ENDPOINT && msg->rma_iov->key == FI_KEY_NOTAVAIL)
    broken ("FI_MR_ENDPOINT, and a key that was not there yet");
  if (!inlined)
    local (len ? iov->iov_base : NULL, len, msg->desc ? msg->desc[0] : NULL, write ? FI_WRITE : FI_READ);
  pthread_mutex_lock (&ep->lock);
  ssize_t status = -FI_EAGAIN;
  if (!full (ep, completes))
    {
      struct later one = { .age = 2, .write = write, .inlined = inlined, .flags = flags, .msg = *msg, .iov = { NULL, 0 }, .far = *msg->rma_iov };
      if (len)
        one.iov = *iov;
      if (inlined)
        memcpy (one.bytes, len ? iov->iov_base : "", len);
      if (data < 8)
        one.msg.data &= (1ull << (8 * data)) - 1;
      if (completes)
        take (msg->context);
      if (len > waw || (unordered && ep->posts % 3 != 0))
        {
          ep->later[(ep->first + ep->count++) % LATER] = one;
          status = 0;
          /* A thread that sleeps until something comes reads on, which is how this goes out. */
          fi_cq_signal (ep->cq->real);
        }
      else
        status = post_later (ep, &one);
      if (completes && status != 0)
        give (msg->context);
      ep->under_way += completes && status == 0;
    }
  pthread_mutex_unlock (&ep->lock);
  one_taken (status);
  return status;
}

#define EP(fid) ((struct ep *)(fid))
static ssize_t readmsg (struct fid_ep *ep, const struct fi_msg_rma *msg, uint64_t flags) { return rma (EP (ep), 0, msg, flags); }
static ssize_t writemsg (struct fid_ep *ep, const struct fi_msg_rma *msg, uint64_t flags) { return rma (EP (ep), 1, msg, flags); }

static ssize_t
plain (struct fid_ep *ep, int write, void *buf, size_t len, void *desc, fi_addr_t to, uint64_t addr, uint64_t key, void *context)
{
  const struct iovec iov = { buf, len };
  const struct fi_rma_iov far = { addr, len, key };
  const struct fi_msg_rma msg = { &iov, &desc, 1, to, &far, 1, context, 0 };
  return rma (EP (ep), write, &msg, EP (ep)->op_flags & FI_COMPLETION);
}
static ssize_t
read_plain (struct fid_ep *ep, void *buf, size_t len, void *desc, fi_addr_t from, uint64_t addr, uint64_t key, void *context)
{
  return plain (ep, 0, buf, len, desc, from, addr, key, context);
}
static ssize_t
write_plain (struct fid_ep *ep, const void *buf, size_t len, void *desc, fi_addr_t to, uint64_t addr, uint64_t key, void *context)
{
  return plain (ep, 1, (void *)buf, len, desc, to, addr, key, context);
}

static ssize_t
send_one (struct fid_ep *fid, const void *buf, size_t len, void *desc, fi_addr_t to, void *context)
{
  struct ep *ep = EP (fid);
  if (len > max)
    broken ("max_msg_size is %zu, and %zu bytes are sent", max, len);
  local (buf, len, desc, FI_SEND);
  const int completes = !ep->selective || ep->op_flags & FI_COMPLETION;
  pthread_mutex_lock (&ep->lock);
  ssize_t status = -FI_EAGAIN;
  if (!unordered)
    go_on (ep, 1);
  /* After what was written before. */
  if (!full (ep, completes) && (unordered || !comes_later (ep, to)))
    {
      if (completes)
        take (context);
      status = fi_send (ep->real, buf, len, NULL, to, context);
      if (completes && status != 0)
        give (context);
      ep->under_way += completes && status == 0;
    }
  pthread_mutex_unlock (&ep->lock);
  one_taken (status);
  return status;
}

static ssize_t
recv_one (struct fid_ep *fid, void *buf, size_t len, void *desc, fi_addr_t from, void *context)
{
  struct ep *ep = EP (fid);
  local (buf, len, desc, FI_RECV);
  pthread_mutex_lock (&ep->lock);
  ssize_t status = ep->received >= rx || (busy && ep->receives++ % busy == 0) ? -FI_EAGAIN : 0;
  if (status == 0)
    {
      take (context);
      if (rxdata && ep->spares < SPARE && ep->spares <= ep->received / 2)
        ep->spare[ep->spares++] = context;
      else
        status = fi_recv (ep->real, buf, len, NULL, from, context);
      if (status != 0)
        give (context);
      ep->received += status == 0;
      ep->most = ep->received > ep->most ? ep->received : ep->most;
    }
  pthread_mutex_unlock (&ep->lock);
  return status;
}

static int
bind_ep (struct fid *fid, struct fid *to, uint64_t flags)
{
  struct ep *ep = (struct ep *)fid;
  if (to->fclass == FI_CLASS_AV)
    return fi_ep_bind (ep->real, &((struct av *)to)->real->fid, flags);
  if (to->fclass == FI_CLASS_CNTR)
    return fi_ep_bind (ep->real, to, flags);
  ep->cq = (struct cq *)to;
  ep->cq->ep = ep;
  ep->selective = (flags & FI_SELECTIVE_COMPLETION) != 0;
  return fi_ep_bind (ep->real, &ep->cq->real->fid, flags);
}

static int
control_ep (struct fid *fid, int command, void *arg)
{
  struct ep *ep = (struct ep *)fid;
  ep->enabled |= command == FI_ENABLE;
  return fi_control (&ep->real->fid, command, arg);
}
static int getname_ep (struct fid *fid, void *addr, size_t *len) { return fi_getname (&((struct ep *)fid)->real->fid, addr, len); }

/* A buffer for a write with data: the context of one that is used up. */
static void *
use_up (struct ep *ep)
{
  void *context = ep->spare[0];
  if (ep->received + 2 * SPARE < ep->most)
    broken ("FI_RX_CQ_DATA, and receive buffers are not posted again");
  memmove (ep->spare, ep->spare + 1, --ep->spares * sizeof *ep->spare);
  return context;
}

static ssize_t
read_cq (struct fid_cq *fid, void *buf, size_t count)
{
  struct cq *cq = (struct cq *)fid;
  struct ep *ep = cq->ep;
  struct fi_cq_data_entry *entries = buf;
  if (ep == NULL)
    return -FI_EAGAIN;
  pthread_mutex_lock (&ep->lock);
  go_on (ep, 0);
  /* What comes waits for receive buffers, where it may need them. */
  if (rxdata && count > ep->spares)
    count = ep->spares;
  const ssize_t found = count ? fi_cq_read (cq->real, buf, count) : -FI_EAGAIN;
  for (ssize_t i = 0; i < found; i++)
    {
      struct fi_cq_data_entry *one = entries + i;
      if (one->flags & FI_REMOTE_WRITE || (one->flags & FI_RMA && !(one->flags & (FI_WRITE | FI_READ))))
        {
          one->op_context = rxdata && one->flags & FI_REMOTE_CQ_DATA ? use_up (ep) : NULL;
          ep->received -= one->op_context != NULL;
        }
      else if (one->flags & FI_RECV)
        ep->received--;
      else
        ep->under_way--;
      give (one->op_context);
    }
  pthread_mutex_unlock (&ep->lock);
  return found;
}

static ssize_t
readerr_cq (struct fid_cq *fid, struct fi_cq_err_entry *buf, uint64_t flags)
{
  struct cq *cq = (struct cq *)fid;
  const ssize_t found = fi_cq_readerr (cq->real, buf, flags);
  if (found != 1)
    return found;
  pthread_mutex_lock (&cq->ep->lock);
  if (buf->flags & FI_RECV)
    cq->ep->received--;
  else if (cq->ep->under_way > 0)
    cq->ep->under_way--;
  give (buf->op_context);
  pthread_mutex_unlock (&cq->ep->lock);
  return found;
}

static int control_cq (struct fid *fid, int command, void *arg) { return fi_control (&((struct cq *)fid)->real->fid, command, arg); }

static int
trywait (struct fid_fabric *fabric, struct fid **fids, int count)
{
  struct cq *cq = (struct cq *)fids[0];
  struct fid *one[1] = { &cq->real->fid };
  if (count != 1 || nowait)
    broken ("fi_trywait where nobody may sleep");
  return cq->ep && cq->ep->count ? -FI_EAGAIN : fi_trywait (((struct fabric *)fabric)->real, one, 1);
}

static int
insert (struct fid_av *fid, const void *addr, size_t count, fi_addr_t *number, uint64_t flags, void *context)
{
  struct av *av = (struct av *)fid;
  if (av->used + count > av_room)
    return -FI_ENOMEM;
  const int inserted = fi_av_insert (av->real, addr, count, number, flags, context);
  av->used += inserted > 0 ? inserted : 0;
  return inserted;
}

static int
remove_av (struct fid_av *fid, fi_addr_t *number, size_t count, uint64_t flags)
{
  struct av *av = (struct av *)fid;
  av->used -= count;
  return fi_av_remove (av->real, number, count, flags);
}

/* The true registration. An address there is an offset here, if the registration begins at 0. */
static int
enable_mr (struct mr *mr)
{
  static uint64_t keys = 0x4000;
  struct iovec iov = mr->iov;
  struct fi_mr_attr attr = mr->attr;
  attr.mr_iov = &iov;
  if (mr_mode & FI_MR_VIRT_ADDR)
    iov.iov_len += (uintptr_t)iov.iov_base, iov.iov_base = NULL;
  if (mr_mode & FI_MR_PROV_KEY)
    attr.requested_key = __atomic_add_fetch (&keys, 1, __ATOMIC_RELAXED) | (uint64_t)getpid () << 32;
  const int status = fi_mr_regattr (mr->domain->real, &attr, 0, &mr->real);
  if (status == 0)
    mr->fid.key = fi_mr_key (mr->real);
  return status;
}

static int
bind_mr (struct fid *fid, struct fid *to, uint64_t flags)
{
  (void)flags;
  if (!(mr_mode & FI_MR_ENDPOINT) || !((struct ep *)to)->enabled)
    broken ("a registration is bound without FI_MR_ENDPOINT, or before the endpoint is enabled");
  ((struct mr *)fid)->bound = 1;
  return 0;
}

static int
control_mr (struct fid *fid, int command, void *arg)
{
  struct mr *mr = (struct mr *)fid;
  (void)arg;
  if (command != FI_ENABLE || !mr->bound)
    broken ("FI_MR_ENDPOINT, and a registration that is of no endpoint");
  return enable_mr (mr);
}

static int
regattr (struct fid *fid, const struct fi_mr_attr *attr, uint64_t flags, struct fid_mr **into)
{
  static struct fi_ops ops = { .size = sizeof ops, .close = close_mr, .bind = bind_mr, .control = control_mr };
  struct mr *mr = calloc (1, sizeof *mr);
  (void)flags;
  mr->domain = (struct domain *)fid, mr->attr = *attr, mr->iov = attr->mr_iov[0];
  mr->fid.fid = (struct fid){ .fclass = FI_CLASS_MR, .context = attr->context, .ops = &ops };
  mr->fid.mem_desc = mr, mr->fid.key = FI_KEY_NOTAVAIL;
  const uintptr_t page = sysconf (_SC_PAGESIZE), from = (uintptr_t)mr->iov.iov_base & -page;
  if (attr->iov_count != 1)
    broken ("a registration of %zu pieces", attr->iov_count);
  if (mr_mode & FI_MR_ALLOCATED && msync ((void *)from, (uintptr_t)mr->iov.iov_base + mr->iov.iov_len - from, MS_ASYNC) != 0)
    broken ("FI_MR_ALLOCATED, and memory that is not there is registered");
  if (!(mr_mode & FI_MR_PROV_KEY) && keysize < 8 && attr->requested_key >> (8 * keysize) != 0)
    broken ("mr_key_size is %zu, and a key of more is asked for", keysize);
  const int status = mr_mode & FI_MR_ENDPOINT ? 0 : enable_mr (mr);
  if (status != 0)
    free (mr);
  else
    *into = &mr->fid;
  return status;
}

/* What the true provider knows. */
static struct fi_info *
true_info (const struct fi_info *info)
{
  struct fi_info *own = REAL (fi_dupinfo) (info);
  const uint64_t modes = ~(FI_CONTEXT | FI_CONTEXT2 | FI_RX_CQ_DATA);
  own->mode &= modes, own->tx_attr->mode &= modes, own->rx_attr->mode &= modes, own->domain_attr->mode &= modes;
  own->domain_attr->mr_mode = 0, own->domain_attr->mr_key_size = 8, own->domain_attr->resource_mgmt = FI_RM_ENABLED;
  return own;
}

static int
open_av (struct fid_domain *domain, struct fi_av_attr *attr, struct fid_av **into, void *context)
{
  static struct fi_ops ops = { .size = sizeof ops, .close = close_av };
  static struct fi_ops_av table = { .size = sizeof table, .insert = insert, .remove = remove_av };
  struct av *av = calloc (1, sizeof *av);
  const int status = fi_av_open (((struct domain *)domain)->real, attr, &av->real, context);
  av->fid.fid = (struct fid){ .fclass = FI_CLASS_AV, .context = context, .ops = &ops }, av->fid.ops = &table;
  *into = &av->fid;
  return status;
}

static int
open_cq (struct fid_domain *domain, struct fi_cq_attr *attr, struct fid_cq **into, void *context)
{
  static struct fi_ops ops = { .size = sizeof ops, .close = close_cq, .control = control_cq };
  static struct fi_ops_cq table = { .size = sizeof table, .read = read_cq, .readerr = readerr_cq };
  if (nowait && attr->wait_obj != FI_WAIT_NONE)
    return -FI_ENOSYS;
  if (attr->format != FI_CQ_FORMAT_DATA)
    broken ("a queue of another format");
  struct cq *cq = calloc (1, sizeof *cq);
  const int status = fi_cq_open (((struct domain *)domain)->real, attr, &cq->real, context);
  cq->fid.fid = (struct fid){ .fclass = FI_CLASS_CQ, .context = context, .ops = &ops }, cq->fid.ops = &table;
  *into = &cq->fid;
  return status;
}

static int
open_cntr (struct fid_domain *domain, struct fi_cntr_attr *attr, struct fid_cntr **into, void *context)
{
  return nocntr ? -FI_ENOSYS : fi_cntr_open (((struct domain *)domain)->real, attr, into, context);
}

static int
open_ep (struct fid_domain *domain, struct fi_info *info, struct fid_ep **into, void *context)
{
  static struct fi_ops ops = { .size = sizeof ops, .close = close_ep, .bind = bind_ep, .control = control_ep };
  static struct fi_ops_cm cm = { .size = sizeof cm, .getname = getname_ep };
  static struct fi_ops_msg msg = { .size = sizeof msg, .recv = recv_one, .send = send_one };
  static struct fi_ops_rma access = { .size = sizeof access, .read = read_plain, .readmsg = readmsg, .write = write_plain, .writemsg = writemsg };
  struct fi_info *own = true_info (info);
  struct ep *ep = calloc (1, sizeof *ep);
  const int status = fi_endpoint (((struct domain *)domain)->real, own, &ep->real, context);
  REAL (fi_freeinfo) (own);
  pthread_mutex_init (&ep->lock, NULL);
  ep->fid = (struct fid_ep){ .fid = { .fclass = FI_CLASS_EP, .context = context, .ops = &ops }, .cm = &cm, .msg = &msg, .rma = &access };
  ep->op_flags = info->tx_attr->op_flags;
  *into = &ep->fid;
  return status;
}

static int
open_domain (struct fid_fabric *fabric, struct fi_info *info, struct fid_domain **into, void *context)
{
  static struct fi_ops ops = { .size = sizeof ops, .close = close_domain };
  static struct fi_ops_domain table = { .size = sizeof table, .av_open = open_av, .cq_open = open_cq, .endpoint = open_ep, .cntr_open = open_cntr };
  static struct fi_ops_mr mr = { .size = sizeof mr, .regattr = regattr };
  struct fi_info *own = true_info (info);
  struct domain *domain = calloc (1, sizeof *domain);
  const int status = fi_domain (((struct fabric *)fabric)->real, own, &domain->real, context);
  REAL (fi_freeinfo) (own);
  domain->fid = (struct fid_domain){ .fid = { .fclass = FI_CLASS_DOMAIN, .context = context, .ops = &ops }, .ops = &table, .mr = &mr };
  *into = &domain->fid;
  return status;
}

uint32_t fi_version (void) { return REAL (fi_version) (); }
struct fi_info *fi_dupinfo (const struct fi_info *info) { return REAL (fi_dupinfo) (info); }
void fi_freeinfo (struct fi_info *info) { REAL (fi_freeinfo) (info); }
const char *fi_strerror (int error) { return REAL (fi_strerror) (error); }
int fi_getparams (struct fi_param **params, int *count) { return REAL (fi_getparams) (params, count); }
void fi_freeparams (struct fi_param *params) { REAL (fi_freeparams) (params); }

int
fi_fabric (struct fi_fabric_attr *attr, struct fid_fabric **into, void *context)
{
  static struct fi_ops ops = { .size = sizeof ops, .close = close_fabric };
  static struct fi_ops_fabric table = { .size = sizeof table, .domain = open_domain, .trywait = trywait };
  struct fabric *fabric = calloc (1, sizeof *fabric);
  const int status = REAL (fi_fabric) (attr, &fabric->real, context);
  fabric->fid.fid = (struct fid){ .fclass = FI_CLASS_FABRIC, .context = context, .ops = &ops }, fabric->fid.ops = &table;
  *into = &fabric->fid;
  return status;
}

#define LESS(value, most) ((value) = (value) < (most) ? (value) : (most))

int
fi_getinfo (uint32_t version, const char *node, const char *service, uint64_t flags, const struct fi_info *hints, struct fi_info **into)
{
  const uint64_t mode = context_mode | (rxdata ? FI_RX_CQ_DATA : 0);
  /* Who does not say that he keeps them is offered nothing. */
  if (hints != NULL && ((mode & ~hints->mode) != 0 || (mr_mode & ~hints->domain_attr->mr_mode) != 0))
    return -FI_ENODATA;
  if (hints != NULL && norm && hints->domain_attr->resource_mgmt == FI_RM_ENABLED)
    return -FI_ENODATA;
  const int status = REAL (fi_getinfo) (version, node, service, flags, hints, into);
  for (struct fi_info *one = status == 0 ? *into : NULL; one != NULL; one = one->next)
    {
      struct fi_domain_attr *domain = one->domain_attr;
      struct fi_ep_attr *ep = one->ep_attr;
      one->mode = mode, domain->mr_mode = mr_mode, domain->mr_key_size = keysize;
      one->tx_attr->mode = one->rx_attr->mode = domain->mode = mode;
      domain->resource_mgmt = norm ? FI_RM_DISABLED : FI_RM_ENABLED;
      LESS (domain->cq_data_size, data), LESS (one->tx_attr->inject_size, inject), LESS (ep->max_msg_size, max);
      LESS (one->tx_attr->size, tx), LESS (one->rx_attr->size, rx), LESS (ep->max_order_waw_size, waw), LESS (ep->max_order_raw_size, waw);
      if (unordered)
        {
          one->tx_attr->msg_order = one->rx_attr->msg_order = FI_ORDER_SAS;
          ep->max_order_waw_size = ep->max_order_raw_size = ep->max_order_war_size = 0;
        }
    }
  return status;
}
