/*
 * Heat in a plate, divided into blocks: Jacobi steps until the largest change is small.
 *
 * stencil [ROWS [COLUMNS [STEPS]]]
 *
 * The UEs form a grid. Its rows and columns are communicators. In each step a UE exchanges the edges of its block with its four
 * neighbours at the same time. Every ten steps two reductions find the largest change, first along rows, then along columns. At
 * the end UE 0 computes the same alone: steps, change and checksum must agree to the last bit, with any number of UEs.
 */
#include "check.h"

#include <string.h>

enum
{
  STEPS_BETWEEN_LOOKS = 10
};

static const double ENOUGH = 1e-5; /* the largest change that ends the work */

struct problem
{
  long rows, columns, steps;
};

/** A part of the plate, with the cells around it. */
struct block
{
  long rows, columns;
  double *now, *next;
};

struct result
{
  long steps;
  double change;
  long checksum; /* sum of the bit patterns of all cells: the order does not matter */
};

/** The position of this UE in the grid. */
struct grid
{
  int height, width, row, column;
  RCCE_COMM along_row, along_column;
};

static double *
cell (const struct block *block, double *cells, long row, long column)
{
  return &cells[(row + 1) * (block->columns + 2) + column + 1];
}

/** A block of cold cells. The upper edge of the plate is warm. */
static struct block
make_block (const struct problem *problem, long first_row, long rows, long first_column, long columns)
{
  struct block block = { rows, columns, NULL, NULL };
  const size_t bytes = (size_t) (rows + 2) * (size_t) (columns + 2) * sizeof (double);
  block.now = allocate (bytes);
  block.next = allocate (bytes);
  if (first_row == 0)
    for (long column = 0; column < columns; column++)
      {
        const double x = (double) (first_column + column + 1) / (double) (problem->columns + 1);
        *cell (&block, block.now, -1, column) = *cell (&block, block.next, -1, column) = 4.0 * x * (1.0 - x);
      }
  return block;
}

/** Computes one step. Returns the largest change. */
static double
step (struct block *block)
{
  double change = 0.0;
  for (long row = 0; row < block->rows; row++)
    for (long column = 0; column < block->columns; column++)
      {
        const double value = 0.25
                             * (*cell (block, block->now, row - 1, column) + *cell (block, block->now, row + 1, column)
                                + *cell (block, block->now, row, column - 1) + *cell (block, block->now, row, column + 1));
        const double difference = value - *cell (block, block->now, row, column);
        change = difference > change ? difference : -difference > change ? -difference : change;
        *cell (block, block->next, row, column) = value;
      }
  double *old = block->now;
  block->now = block->next;
  block->next = old;
  return change;
}

static long
checksum_of (const struct block *block)
{
  uint64_t sum = 0, bits;
  for (long row = 0; row < block->rows; row++)
    for (long column = 0; column < block->columns; column++)
      {
        memcpy (&bits, cell (block, block->now, row, column), sizeof bits);
        sum += bits;
      }
  long checksum;
  memcpy (&checksum, &sum, sizeof checksum);
  return checksum;
}

static void
copy_edge (const struct block *block, double *edge, int out, long row, long column, int along_row)
{
  const long length = along_row ? block->columns : block->rows;
  for (long i = 0; i < length; i++)
    {
      double *inside = cell (block, block->now, along_row ? row : i, along_row ? i : column);
      *(out ? &edge[i] : inside) = *(out ? inside : &edge[i]);
    }
}

/** Fills the cells around the block with the neighbours' edges. */
static void
exchange_edges (const struct grid *grid, const struct block *block, double *edges)
{
  static const struct
  {
    int down, right;
  } ways[4] = { { -1, 0 }, { 1, 0 }, { 0, -1 }, { 0, 1 } };
  const long longest = block->rows > block->columns ? block->rows : block->columns;
  iRCCE_SEND_REQUEST sends[4];
  iRCCE_RECV_REQUEST receives[4];
  iRCCE_WAIT_LIST all;
  iRCCE_init_wait_list (&all);
  for (int way = 0; way < 4; way++)
    {
      const int down = ways[way].down, right = ways[way].right, row = grid->row + down, column = grid->column + right;
      if (row < 0 || row >= grid->height || column < 0 || column >= grid->width)
        continue;
      const int neighbour = row * grid->width + column;
      double *out = edges + 2 * way * longest, *in = out + longest;
      const ssize_t bytes = (ssize_t) ((size_t) (down != 0 ? block->columns : block->rows) * sizeof *out);
      copy_edge (block, out, 1, down > 0 ? block->rows - 1 : 0, right > 0 ? block->columns - 1 : 0, down != 0);
      POST (iRCCE_irecv ((char *) in, bytes, neighbour, &receives[way]));
      POST (iRCCE_isend ((char *) out, bytes, neighbour, &sends[way]));
      iRCCE_add_to_wait_list (&all, &sends[way], &receives[way]);
    }
  CHECK (iRCCE_wait_all (&all));
  for (int way = 0; way < 4; way++)
    {
      const int down = ways[way].down, right = ways[way].right, row = grid->row + down, column = grid->column + right;
      if (row >= 0 && row < grid->height && column >= 0 && column < grid->width)
        copy_edge (block, edges + (2 * way + 1) * longest, 0, down > 0 ? block->rows : -1, right > 0 ? block->columns : -1, down != 0);
    }
}

/** The largest change of all blocks. Without a grid, the plate is one block. */
static double
change_of_all (const struct grid *grid, double change)
{
  if (grid == NULL)
    return change;
  double row = 0.0, all = 0.0;
  CHECK (RCCE_allreduce ((char *) &change, (char *) &row, 1, RCCE_DOUBLE, RCCE_MAX, grid->along_row));
  CHECK (RCCE_allreduce ((char *) &row, (char *) &all, 1, RCCE_DOUBLE, RCCE_MAX, grid->along_column));
  return all;
}

static struct result
solve (const struct problem *problem, const struct grid *grid, struct block *block)
{
  struct result result = { 0, 0.0, 0 };
  const long longest = block->rows > block->columns ? block->rows : block->columns;
  double *edges = allocate (8 * (size_t) longest * sizeof *edges);
  while (result.steps < problem->steps)
    {
      if (grid != NULL)
        exchange_edges (grid, block, edges);
      result.change = step (block);
      result.steps++;
      if (result.steps % STEPS_BETWEEN_LOOKS == 0 || result.steps == problem->steps)
        {
          result.change = change_of_all (grid, result.change);
          if (result.change < ENOUGH)
            break;
        }
    }
  result.checksum = checksum_of (block);
  free (edges);
  return result;
}

static int
row_of (int ue, void *grid)
{
  return ue / ((const struct grid *) grid)->width;
}

static int
column_of (int ue, void *grid)
{
  return ue % ((const struct grid *) grid)->width;
}

/** A grid as square as the number of UEs permits. */
static struct grid
make_grid (void)
{
  const int ues = RCCE_num_ues ();
  struct grid grid;
  memset (&grid, 0, sizeof grid);
  for (int height = 1; height * height <= ues; height++)
    if (ues % height == 0)
      grid.height = height;
  grid.width = ues / grid.height;
  grid.row = row_of (RCCE_ue (), &grid);
  grid.column = column_of (RCCE_ue (), &grid);
  CHECK (RCCE_comm_split (row_of, &grid, &grid.along_row));
  CHECK (RCCE_comm_split (column_of, &grid, &grid.along_column));
  return grid;
}

int
RCCE_APP (int argc, char **argv)
{
  begin (&argc, &argv);
  struct problem problem = { 120, 100, 300 };
  if (argc > 4 || (argc > 1 && !parse_number (argv[1], 1, 100000, &problem.rows))
      || (argc > 2 && !parse_number (argv[2], 1, 100000, &problem.columns))
      || (argc > 3 && !parse_number (argv[3], 1, 10000000, &problem.steps)))
    refuse ("usage: %s [ROWS [COLUMNS [STEPS]]]", argv[0]);
  struct grid grid = make_grid ();
  if (problem.rows < grid.height || problem.columns < grid.width)
    refuse ("%s: %d x %d UEs need a cell each", argv[0], grid.height, grid.width);

  const long row = problem.rows * grid.row / grid.height, column = problem.columns * grid.column / grid.width;
  struct block block = make_block (&problem, row, problem.rows * (grid.row + 1) / grid.height - row, column,
                                   problem.columns * (grid.column + 1) / grid.width - column);
  const double start = RCCE_wtime ();
  struct result result = solve (&problem, &grid, &block);
  const double seconds = RCCE_wtime () - start;

  /* Reduces to the first UE of each row, and from these UEs to UE 0. */
  long of_row = 0, of_all = 0;
  CHECK (RCCE_reduce ((char *) &result.checksum, (char *) &of_row, 1, RCCE_LONG, RCCE_SUM, 0, grid.along_row));
  if (grid.column == 0)
    CHECK (RCCE_reduce ((char *) &of_row, (char *) &of_all, 1, RCCE_LONG, RCCE_SUM, 0, grid.along_column));
  if (RCCE_ue () == 0)
    {
      struct block plate = make_block (&problem, 0, problem.rows, 0, problem.columns);
      const struct result alone = solve (&problem, NULL, &plate);
      printf ("%ld x %ld cells on %d x %d UEs: %ld steps in %.3f s, change %.6e, checksum %016lx\n", problem.rows, problem.columns,
              grid.height, grid.width, result.steps, seconds, result.change, (unsigned long) of_all);
      if (alone.steps != result.steps || alone.change != result.change || alone.checksum != of_all)
        die ("stencil: one UE alone has %ld steps, change %.6e, checksum %016lx", alone.steps, alone.change,
             (unsigned long) alone.checksum);
      free (plate.now);
      free (plate.next);
    }
  free (block.now);
  free (block.next);
  CHECK (RCCE_comm_free (&grid.along_row));
  CHECK (RCCE_comm_free (&grid.along_column));
  CHECK (RCCE_finalize ());
  return EXIT_SUCCESS;
}
