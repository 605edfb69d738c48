/* Memory and connections of each rank after a barrier and a reduction of all ranks. Rank 0 prints mean and maximum. */
#define _POSIX_C_SOURCE 200809L
#include "success_or_die.h"

#include <string.h>

enum { PSS, TABLES, CONNECTIONS, VALUES };

/* The number after `name` in a file of /proc, in KiB. */
static unsigned long
kib_in (const char *file, const char *name)
{
  char line[512];
  unsigned long value = 0;
  FILE *const from = fopen (file, "r");
  if (from == NULL)
    {
      perror (file);
      exit (EXIT_FAILURE);
    }
  while (fgets (line, sizeof line, from) != NULL)
    if (strncmp (line, name, strlen (name)) == 0)
      value = strtoul (line + strlen (name), NULL, 10);
  fclose (from);
  return value;
}

/* The number of other ranks with memory mapped here. A pool may be several consecutive mappings. */
static unsigned long
connections (void)
{
  char line[512];
  unsigned long pools = 0, last = 0;
  FILE *const maps = fopen ("/proc/self/maps", "r");
  if (maps == NULL)
    {
      perror ("/proc/self/maps");
      exit (EXIT_FAILURE);
    }
  while (fgets (line, sizeof line, maps) != NULL)
    {
      unsigned long inode;
      if (strstr (line, "/memfd:unipgas-pool") != NULL && sscanf (line, "%*s %*s %*s %*s %lu", &inode) == 1 && inode != last)
        {
          last = inode;
          ++pools;
        }
    }
  fclose (maps);
  return pools > 0 ? pools - 1 : 0;
}

int
main (int argc, char *argv[])
{
  gaspi_rank_t rank, processes;

  SUCCESS_OR_DIE (gaspi_proc_init (GASPI_BLOCK));
  SUCCESS_OR_DIE (gaspi_proc_rank (&rank));
  SUCCESS_OR_DIE (gaspi_proc_num (&processes));

  if (argc > 1)
    {
      if (rank == 0)
        fprintf (stderr, "%s: no arguments, please\n", argv[0]);
      leave ();
      return 2;
    }

  const unsigned long at_start = connections ();
  unsigned long mine[VALUES] = { 1, 1, 1 }, sums[VALUES], most[VALUES];
  SUCCESS_OR_DIE (gaspi_barrier (GASPI_GROUP_ALL, GASPI_BLOCK));
  SUCCESS_OR_DIE (gaspi_allreduce (mine, sums, VALUES, GASPI_OP_SUM, GASPI_TYPE_ULONG, GASPI_GROUP_ALL, GASPI_BLOCK));

  mine[PSS] = kib_in ("/proc/self/smaps_rollup", "Pss:");
  mine[TABLES] = kib_in ("/proc/self/status", "VmPTE:");
  mine[CONNECTIONS] = connections ();
  SUCCESS_OR_DIE (gaspi_allreduce (mine, sums, VALUES, GASPI_OP_SUM, GASPI_TYPE_ULONG, GASPI_GROUP_ALL, GASPI_BLOCK));
  SUCCESS_OR_DIE (gaspi_allreduce (mine, most, VALUES, GASPI_OP_MAX, GASPI_TYPE_ULONG, GASPI_GROUP_ALL, GASPI_BLOCK));

  unsigned long few = 2;
  for (unsigned long reached = 1; reached < processes; reached *= 2)
    few += 2;
  /* Up to 16 ranks meet at one rank. */
  if (few < 16)
    few = 16;
  if (rank == 0)
    printf ("%u ranks: %lu KiB each and %lu KiB of page tables (at most %lu and %lu), %lu connections (at most %lu)\n", processes,
            sums[PSS] / processes, sums[TABLES] / processes, most[PSS], most[TABLES], sums[CONNECTIONS] / processes,
            most[CONNECTIONS]);
  const int fine = at_start == 0 && mine[CONNECTIONS] <= few && mine[PSS] > 0;
  if (!fine)
    fprintf (stderr, "footprint: rank %u has %lu connections after the start, %lu after the collectives, and %lu KiB\n", rank,
             at_start, mine[CONNECTIONS], mine[PSS]);
  leave ();
  return fine ? EXIT_SUCCESS : EXIT_FAILURE;
}
