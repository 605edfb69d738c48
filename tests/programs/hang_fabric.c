/* A process that waits for a completion which never comes, for run-hangs: by fi_cq_sread, or as the argument says. */
#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_eq.h>
#include <stdio.h>
#include <string.h>

#define CHECK(call) \
  do \
    { \
      int code = (call); \
      if (code) \
        { \
          fprintf (stderr, "%s: %d\n", #call, code); \
          return 1; \
        } \
    } \
  while (0)

int main (int argc, char **argv)
{
  const char *how = argc > 1 ? argv[1] : "";
  struct fi_info *hints = fi_allocinfo (), *info;
  struct fid_fabric *fabric;
  struct fid_domain *domain;
  struct fid_cq *queue;
  struct fid_cntr *counter;
  struct fid_poll *polled;
  struct fid_wait *set;
  struct fi_cq_attr attr = { .wait_obj = FI_WAIT_UNSPEC };
  struct fi_cntr_attr counted = { .wait_obj = FI_WAIT_UNSPEC };
  struct fi_poll_attr plain = { 0 };
  struct fi_wait_attr waited = { .wait_obj = FI_WAIT_UNSPEC };
  struct fi_cq_entry entry;
  void *context;
  hints->fabric_attr->prov_name = strdup ("unipgas");
  hints->ep_attr->type = FI_EP_RDM;
  CHECK (fi_getinfo (FI_VERSION (1, 9), NULL, NULL, 0, hints, &info));
  CHECK (fi_fabric (info->fabric_attr, &fabric, NULL));
  CHECK (fi_domain (fabric, info, &domain, NULL));
  CHECK (fi_wait_open (fabric, &waited, &set));
  if (!strcmp (how, "fi_wait"))
    {
      attr.wait_obj = FI_WAIT_SET;
      attr.wait_set = set;
    }
  CHECK (fi_cq_open (domain, &attr, &queue, NULL));
  CHECK (fi_cntr_open (domain, &counted, &counter, NULL));
  CHECK (fi_poll_open (domain, &plain, &polled));
  CHECK (fi_poll_add (polled, &queue->fid, 0));
  while (!strcmp (how, "fi_cq_read") && fi_cq_read (queue, &entry, 1) == -FI_EAGAIN)
    ;
  while (!strcmp (how, "fi_cntr_read") && fi_cntr_read (counter) == 0)
    ;
  while (!strcmp (how, "fi_poll") && fi_poll (polled, &context, 1) == 0)
    ;
  if (!strcmp (how, "fi_cntr_wait"))
    return fi_cntr_wait (counter, 1, -1) < 0;
  if (!strcmp (how, "fi_wait"))
    return fi_wait (set, -1) < 0;
  return fi_cq_sread (queue, &entry, 1, NULL, -1) < 0;
}
