/*
 * Pi as an integral, with dynamic distribution of the work. Each process gets the number of its next package from a counter on
 * rank 0, by gaspi_atomic_fetch_add().
 *
 * pi_atomic [PACKAGES [INTERVALS]]: number of packages, and of intervals in each.
 */
#include "success_or_die.h"

#include <math.h>

enum
{
  SEGMENT = 0,
  KEEPER = 0
};

/* The integral of 4 / (1 + x^2) over one package of intervals, by the midpoint rule. */
static double
integrate (long package, long packages, long intervals)
{
  const double width = 1.0 / ((double) packages * (double) intervals);
  double sum = 0.0;
  for (long i = 0; i < intervals; i++)
    {
      const double x = ((double) package * (double) intervals + (double) i + 0.5) * width;
      sum += 4.0 / (1.0 + x * x);
    }
  return sum * width;
}

/* Works until all packages are taken. Returns 1 if each package was computed exactly once and the sum is pi. */
static int
work (long packages, long intervals, gaspi_rank_t rank, gaspi_rank_t processes)
{
  /* The counter starts at 0. */
  SUCCESS_OR_DIE (gaspi_segment_create (SEGMENT, sizeof (gaspi_atomic_value_t), GASPI_GROUP_ALL, GASPI_BLOCK,
                                        GASPI_MEM_INITIALIZED));

  double part = 0.0;
  /* Count and sum of the package numbers. They are wrong if a package is lost or computed twice. */
  unsigned long mine[2] = { 0, 0 };
  for (;;)
    {
      gaspi_atomic_value_t package;
      SUCCESS_OR_DIE (gaspi_atomic_fetch_add (SEGMENT, 0, KEEPER, 1, &package, GASPI_BLOCK));
      if (package >= (gaspi_atomic_value_t) packages)
        break;
      part += integrate ((long) package, packages, intervals);
      mine[0] += 1;
      mine[1] += package;
    }

  double pi = 0.0;
  unsigned long all[2] = { 0, 0 };
  SUCCESS_OR_DIE (gaspi_allreduce (&part, &pi, 1, GASPI_OP_SUM, GASPI_TYPE_DOUBLE, GASPI_GROUP_ALL, GASPI_BLOCK));
  SUCCESS_OR_DIE (gaspi_allreduce (mine, all, 2, GASPI_OP_SUM, GASPI_TYPE_ULONG, GASPI_GROUP_ALL, GASPI_BLOCK));

  const unsigned long count = (unsigned long) packages;
  const double step = 1.0 / ((double) packages * (double) intervals);
  const double error = fabs (pi - 3.14159265358979323846);
  /* The midpoint rule is off by step^2 / 12 here; the rest is rounding. */
  const int right = all[0] == count && all[1] == count * (count - 1) / 2 && error <= step * step / 6.0 + 1e-12;
  if (rank == 0)
    printf ("pi_atomic: %.12f, %lu packages by %u processes: %s\n", pi, all[0], processes, right ? "right" : "WRONG");

  SUCCESS_OR_DIE (gaspi_barrier (GASPI_GROUP_ALL, GASPI_BLOCK));
  SUCCESS_OR_DIE (gaspi_segment_delete (SEGMENT));
  return right;
}

int
main (int argc, char *argv[])
{
  long packages = 1000, intervals = 1000;
  gaspi_rank_t rank, processes;

  SUCCESS_OR_DIE (gaspi_proc_init (GASPI_BLOCK));
  SUCCESS_OR_DIE (gaspi_proc_rank (&rank));
  SUCCESS_OR_DIE (gaspi_proc_num (&processes));

  int status;
  if (argc <= 3 && (argc < 2 || parse_number (argv[1], 1, 1000000, &packages))
      && (argc < 3 || parse_number (argv[2], 1, 1000000, &intervals)))
    status = work (packages, intervals, rank, processes) ? EXIT_SUCCESS : EXIT_FAILURE;
  else
    {
      if (rank == 0)
        fprintf (stderr, "usage: %s [PACKAGES [INTERVALS]], each a number from 1 to 1000000\n", argv[0]);
      status = 2;
    }

  leave ();
  return status;
}
