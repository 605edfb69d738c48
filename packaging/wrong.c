/* Calls with wrong arguments: with UNIPGAS_CHECK=1 each gets a line (run-examples). */
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
