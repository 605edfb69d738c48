/* Calls with wrong arguments, or in a wrong order: with UNIPGAS_CHECK=1 each gets a line (run-examples, run-seen). -DOF_utofu, -DOF_rcce, -DOF_libfabric: of another
 * interface. */
#if defined OF_utofu
#include <utofu.h>

int
main (void)
{
  utofu_vcq_hdl_t queue;
  utofu_vcq_id_t id;
  utofu_vbg_id_t gate;
  utofu_stadd_t address;
  static char memory[4096] __attribute__ ((aligned (256)));
  if (utofu_create_vcq (99, 0, &queue) != UTOFU_ERR_INVALID_TNI_ID || utofu_create_vcq (0, 0, &queue) != UTOFU_SUCCESS
      || utofu_query_vcq_id (queue, &id) != UTOFU_SUCCESS || utofu_reg_mem (queue, memory, sizeof memory, 0, &address) != UTOFU_SUCCESS)
    return 1;
  utofu_poll_tcq (queue, 0, NULL);
  utofu_poll_mrq (queue + 1, 0, &(struct utofu_mrq_notice){ 0 });
  utofu_reg_mem_with_stag (queue, memory, 100, 1, 0, &address);
  utofu_put (queue, id, address, address, 8, 0, 1UL << 63, NULL);
  utofu_alloc_vbg (0, 1, 0, &gate);
  utofu_poll_barrier (gate + 1, 0);
  return 0;
}
#elif defined OF_rcce
#include <RCCE.h>

int
RCCE_APP (int argc, char **argv)
{
  char bytes[64];
  RCCE_init (&argc, &argv);
  if (RCCE_ue () == 1)
    {
      RCCE_send (bytes, sizeof bytes, 7);
      RCCE_put ((t_vcharp) bytes, (t_vcharp) bytes, 32, 0);
      RCCE_flag_write (NULL, RCCE_FLAG_SET, 0);
    }
  RCCE_barrier (&RCCE_COMM_WORLD);
  return RCCE_finalize ();
}
#elif defined OF_libfabric
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <string.h>

int
main (void)
{
  struct fi_info *hints = fi_allocinfo (), *info;
  struct fid_fabric *fabric;
  struct fid_domain *domain;
  struct fid_ep *endpoint;
  struct fid_cq *queue;
  struct fi_cq_attr attr = { .format = FI_CQ_FORMAT_TAGGED + 9 };
  hints->fabric_attr->prov_name = strdup ("unipgas");
  hints->ep_attr->type = FI_EP_RDM;
  if (fi_getinfo (FI_VERSION (1, 9), NULL, NULL, 0, hints, &info) || fi_fabric (info->fabric_attr, &fabric, NULL)
      || fi_domain (fabric, info, &domain, NULL) || fi_endpoint (domain, info, &endpoint, NULL))
    return 1;
  fi_cq_open (domain, &attr, &queue, NULL);
  fi_enable (endpoint);
  fi_close (&domain->fid);
  return 0;
}
#else
#include <GASPI.h>
#include <stdlib.h>

int
main (void)
{
  gaspi_rank_t rank;
  if (gaspi_proc_init (GASPI_BLOCK) != GASPI_SUCCESS || gaspi_proc_rank (&rank) != GASPI_SUCCESS
      || gaspi_segment_create (0, 4096, GASPI_GROUP_ALL, GASPI_BLOCK, GASPI_MEM_INITIALIZED) != GASPI_SUCCESS)
    return EXIT_FAILURE;
  if (rank == 1)
    {
      gaspi_write (0, 0, 9, 0, 0, 8, 0, GASPI_BLOCK);
      gaspi_write (0, 0, 0, 0, 4090, 8, 0, GASPI_TEST);
      gaspi_proc_rank (NULL);
      gaspi_passive_send (5, 0, 0, 8, GASPI_BLOCK);
    }
  return gaspi_barrier (GASPI_GROUP_ALL, GASPI_BLOCK) == GASPI_SUCCESS && gaspi_proc_term (GASPI_BLOCK) == GASPI_SUCCESS ? EXIT_SUCCESS
                                                                                                                       : EXIT_FAILURE;
}
#endif
