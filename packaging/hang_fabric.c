/* A process that waits for a completion which never comes, for run-hangs. */
#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
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

int main (void)
{
  struct fi_info *hints = fi_allocinfo (), *info;
  struct fid_fabric *fabric;
  struct fid_domain *domain;
  struct fid_cq *queue;
  struct fi_cq_attr attr = { .wait_obj = FI_WAIT_UNSPEC };
  struct fi_cq_entry entry;
  hints->fabric_attr->prov_name = strdup ("unipgas");
  hints->ep_attr->type = FI_EP_RDM;
  CHECK (fi_getinfo (FI_VERSION (1, 9), NULL, NULL, 0, hints, &info));
  CHECK (fi_fabric (info->fabric_attr, &fabric, NULL));
  CHECK (fi_domain (fabric, info, &domain, NULL));
  CHECK (fi_cq_open (domain, &attr, &queue, NULL));
  return fi_cq_sread (queue, &entry, 1, NULL, -1) < 0;
}
