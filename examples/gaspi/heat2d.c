/*
 * Heat in a plate: Jacobi steps on a grid. Its rows are distributed over the processes.
 *
 * heat2d [ROWS [COLUMNS [STEPS]]]
 *
 * In each step a process writes its first and last row into the halo rows of its neighbours with a notification, and waits for
 * their rows. At the end rank 0 computes the same alone. Residual and checksum must agree to the last bit, with any number of
 * processes.
 */
#include "success_or_die.h"

#include <math.h>
#include <string.h>

enum
{
  SEGMENT = 0,
  QUEUE = 0
};

/* Notifications: the halo row that was written, and the grid. */
enum
{
  FROM_ABOVE = 0,
  FROM_BELOW = 1,
  DIRECTIONS = 2
};

typedef struct
{
  long rows, columns, steps;
} problem_t;

typedef struct
{
  double residual;        /* largest change of a cell in the last step */
  unsigned long checksum; /* sum of the bit patterns of all cells; the order does not matter */
} result_t;

/* First row of a rank's part. The sizes of parts differ by at most one row. */
static long
first_row (const problem_t *problem, long rank, long processes)
{
  return problem->rows * rank / processes;
}

/* Temperature at the upper edge of the plate; the other edges are at 0. */
static double
edge (const problem_t *problem, long column)
{
  const double x = (double) (column + 1) / (double) (problem->columns + 1);
  return 4.0 * x * (1.0 - x);
}

static void
cold (double *grid, long rows, const problem_t *problem, int with_upper_edge)
{
  memset (grid, 0, (size_t) (rows + 2) * (size_t) problem->columns * sizeof *grid);
  if (with_upper_edge)
    for (long column = 0; column < problem->columns; column++)
      grid[column] = edge (problem, column);
}

/* One step for the rows 1..rows; row 0 and row rows + 1 are halo or edge. Returns the largest change. */
static double
step (const double *from, double *to, long rows, long columns)
{
  double largest = 0.0;
  for (long row = 1; row <= rows; row++)
    for (long column = 0; column < columns; column++)
      {
        const long here = row * columns + column;
        const double left = column > 0 ? from[here - 1] : 0.0;
        const double right = column + 1 < columns ? from[here + 1] : 0.0;
        to[here] = 0.25 * ((from[here - columns] + from[here + columns]) + (left + right));
        const double change = fabs (to[here] - from[here]);
        if (change > largest)
          largest = change;
      }
  return largest;
}

static unsigned long
checksum (const double *grid, long rows, long columns)
{
  unsigned long sum = 0;
  for (long cell = columns; cell < (rows + 1) * columns; cell++)
    {
      unsigned long bits;
      memcpy (&bits, &grid[cell], sizeof bits);
      sum += bits;
    }
  return sum;
}

static int
serial (const problem_t *problem, result_t *result)
{
  const size_t cells = (size_t) (problem->rows + 2) * (size_t) problem->columns;
  double *grid[2] = { malloc (cells * sizeof (double)), malloc (cells * sizeof (double)) };
  const int enough = grid[0] != NULL && grid[1] != NULL;
  if (enough)
    {
      cold (grid[0], problem->rows, problem, 1);
      cold (grid[1], problem->rows, problem, 1);
      for (long n = 0; n < problem->steps; n++)
        result->residual = step (grid[n % 2], grid[(n + 1) % 2], problem->rows, problem->columns);
      result->checksum = checksum (grid[problem->steps % 2], problem->rows, problem->columns);
    }
  free (grid[0]);
  free (grid[1]);
  return enough;
}

/* Waits for one notification and resets it. */
static void
await (gaspi_notification_id_t id)
{
  gaspi_notification_id_t first;
  gaspi_notification_t value;
  SUCCESS_OR_DIE (gaspi_notify_waitsome (SEGMENT, id, 1, &first, GASPI_BLOCK));
  SUCCESS_OR_DIE (gaspi_notify_reset (SEGMENT, first, &value));
  if (value != 1)
    {
      fprintf (stderr, "heat2d: notification %u has the value %u\n", first, value);
      exit (EXIT_FAILURE);
    }
}

static result_t
parallel (const problem_t *problem, gaspi_rank_t rank, gaspi_rank_t processes)
{
  const long columns = problem->columns;
  const long rows = first_row (problem, rank + 1L, processes) - first_row (problem, rank, processes);
  const long most_rows = (problem->rows + processes - 1) / processes;
  const gaspi_size_t row_bytes = (gaspi_size_t) columns * sizeof (double);
  const gaspi_size_t grid_bytes = (gaspi_size_t) (most_rows + 2) * row_bytes;
  const int has_upper = rank > 0;
  const int has_lower = rank + 1 < processes;

  /* Two grids, one after the other, at the same offsets on all processes. */
  SUCCESS_OR_DIE (gaspi_segment_create (SEGMENT, 2 * grid_bytes, GASPI_GROUP_ALL, GASPI_BLOCK, GASPI_MEM_INITIALIZED));
  gaspi_pointer_t memory;
  SUCCESS_OR_DIE (gaspi_segment_ptr (SEGMENT, &memory));
  double *grid[2] = { memory, (double *) ((char *) memory + grid_bytes) };
  cold (grid[0], rows, problem, !has_upper);
  cold (grid[1], rows, problem, !has_upper);
  SUCCESS_OR_DIE (gaspi_barrier (GASPI_GROUP_ALL, GASPI_BLOCK));

  double largest = 0.0;
  for (long n = 0; n < problem->steps; n++)
    {
      const gaspi_notification_id_t now = (gaspi_notification_id_t) (n % 2);
      const gaspi_offset_t base = now * grid_bytes;
      if (has_upper)
        {
          const long rows_above = first_row (problem, rank, processes) - first_row (problem, rank - 1L, processes);
          POST (QUEUE, gaspi_write_notify (SEGMENT, base + row_bytes, (gaspi_rank_t) (rank - 1), SEGMENT,
                                           base + (gaspi_offset_t) (rows_above + 1) * row_bytes, row_bytes,
                                           now * DIRECTIONS + FROM_BELOW, 1, QUEUE, GASPI_BLOCK));
        }
      if (has_lower)
        POST (QUEUE, gaspi_write_notify (SEGMENT, base + (gaspi_offset_t) rows * row_bytes, (gaspi_rank_t) (rank + 1),
                                         SEGMENT, base, row_bytes, now * DIRECTIONS + FROM_ABOVE, 1, QUEUE,
                                         GASPI_BLOCK));
      if (has_upper)
        await (now * DIRECTIONS + FROM_ABOVE);
      if (has_lower)
        await (now * DIRECTIONS + FROM_BELOW);
      largest = step (grid[now], grid[1 - now], rows, columns);
      /* The next step overwrites the rows that were sent. */
      SUCCESS_OR_DIE (gaspi_wait (QUEUE, GASPI_BLOCK));
    }

  result_t result;
  const unsigned long sum = checksum (grid[problem->steps % 2], rows, columns);
  SUCCESS_OR_DIE (gaspi_allreduce (&largest, &result.residual, 1, GASPI_OP_MAX, GASPI_TYPE_DOUBLE, GASPI_GROUP_ALL,
                                   GASPI_BLOCK));
  SUCCESS_OR_DIE (gaspi_allreduce (&sum, &result.checksum, 1, GASPI_OP_SUM, GASPI_TYPE_ULONG, GASPI_GROUP_ALL,
                                   GASPI_BLOCK));
  SUCCESS_OR_DIE (gaspi_barrier (GASPI_GROUP_ALL, GASPI_BLOCK));
  SUCCESS_OR_DIE (gaspi_segment_delete (SEGMENT));
  return result;
}

/* Returns 0 if the arguments are usable, after a message of rank 0 otherwise. */
static int
read_arguments (int argc, char *argv[], gaspi_rank_t rank, gaspi_rank_t processes, problem_t *problem)
{
  const int usable = argc <= 4 && (argc < 2 || parse_number (argv[1], 1, 100000, &problem->rows))
                     && (argc < 3 || parse_number (argv[2], 1, 100000, &problem->columns))
                     && (argc < 4 || parse_number (argv[3], 1, 100000000, &problem->steps));
  if (!usable)
    {
      if (rank == 0)
        fprintf (stderr, "usage: %s [ROWS [COLUMNS [STEPS]]], each a number above 0\n", argv[0]);
      return 2;
    }
  if (problem->rows < processes)
    {
      if (rank == 0)
        fprintf (stderr, "heat2d: %ld rows are too few for %u processes: take at least one row a process\n",
                 problem->rows, processes);
      return 2;
    }
  return 0;
}

int
main (int argc, char *argv[])
{
  problem_t problem = { 256, 256, 500 };
  gaspi_rank_t rank, processes;

  SUCCESS_OR_DIE (gaspi_proc_init (GASPI_BLOCK));
  SUCCESS_OR_DIE (gaspi_proc_rank (&rank));
  SUCCESS_OR_DIE (gaspi_proc_num (&processes));

  int status = read_arguments (argc, argv, rank, processes, &problem);
  if (status == 0)
    {
      const result_t result = parallel (&problem, rank, processes);
      result_t expected = { 0.0, 0 };
      if (rank == 0 && !serial (&problem, &expected))
        {
          fprintf (stderr, "heat2d: not enough memory for the serial run\n");
          status = EXIT_FAILURE;
        }
      else if (rank == 0)
        {
          const int same = memcmp (&result.residual, &expected.residual, sizeof (double)) == 0
                           && result.checksum == expected.checksum;
          printf ("heat2d: %ld x %ld cells, %ld steps, %u processes\n", problem.rows, problem.columns, problem.steps,
                  processes);
          printf ("heat2d: residual %.12e checksum %016lx\n", result.residual, result.checksum);
          printf ("heat2d: serial   %.12e checksum %016lx: %s\n", expected.residual, expected.checksum,
                  same ? "the same" : "DIFFERENT");
          status = same ? EXIT_SUCCESS : EXIT_FAILURE;
        }
    }

  leave ();
  return status;
}
