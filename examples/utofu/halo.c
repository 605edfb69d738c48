/*
 * Heat on a plate: each process has one block of a grid, and sends the borders of its block to the neighbours in each step. The
 * requests to a neighbour are prepared once, as consecutive descriptors: the border (a column is a put with stride) and a notice in
 * strong order. A step posts them with one call for each neighbour. The result must equal the result of one process bit by bit.
 *
 * halo [COLUMNS [ROWS [STEPS]]]
 */
#define _POSIX_C_SOURCE 200809L

#include "job.h"

enum
{
  GRID_STAG = 1,    /* and the next STag, for the other grid */
  SIGNAL_STAG = 3,  /* target of the puts with notice */
  COLUMN_PUTS = 128 /* most puts of a column in one call */
};

enum side
{
  WEST,
  EAST,
  NORTH,
  SOUTH,
  SIDES
};

/* One of `count` consecutive parts of a row of `length` cells. */
struct part
{
  long first;
  long count;
};

static struct part
part_of (long length, long count, long index)
{
  const long each = length / count, more = length % count;
  const struct part part = { index * each + (index < more ? index : more), each + (index < more) };
  return part;
}

/* One batch of descriptors. */
struct batch
{
  void *descriptors;
  size_t bytes;
};

struct neighbour
{
  long rank; /* -1: edge of the plate */
  struct batch batches[2][2 + 65536 / COLUMN_PUTS];
  size_t batch_count[2];
};

struct plate
{
  long columns, rows;
  long blocks_across, blocks_down;
  struct part across, down; /* own block */
  long pitch;               /* cells from one row of a block to the next, with halo; the same in all blocks */
  double *grid[2];
  utofu_stadd_t address[2];
  struct neighbour neighbours[SIDES];
};

/* Initial temperatures. Only edges of the plate are hot. No block computes them, so they stay hot. */
static double
initial (const struct plate *plate, long column, long row)
{
  if (row < 0)
    return 100.0;
  if (column < 0 || column >= plate->columns || row >= plate->rows)
    return 0.0;
  return (double) ((column * 7 + row * 13) % 32);
}

/* Fills a block and its halo, which has index 0 and the index after the last cell. */
static void
fill (const struct plate *plate, double *grid, struct part across, struct part down, long pitch)
{
  for (long row = -1; row <= down.count; row++)
    for (long column = -1; column <= across.count; column++)
      grid[(row + 1) * pitch + column + 1] = initial (plate, across.first + column, down.first + row);
}

/* Computes blocks and the whole grid, so both round in the same way. */
static void
sweep (const double *from, double *to, long columns, long rows, long pitch)
{
  for (long row = 1; row <= rows; row++)
    for (long column = 1; column <= columns; column++)
      {
        const double *cell = &from[row * pitch + column];
        to[row * pitch + column] = 0.25 * ((cell[-1] + cell[1]) + (cell[-pitch] + cell[pitch]));
      }
}

/* Blocks as square as the number of processes permits. */
static void
arrange (struct plate *plate, long processes)
{
  plate->blocks_down = 1;
  for (long down = 1; down * down <= processes; down++)
    if (processes % down == 0)
      plate->blocks_down = down;
  plate->blocks_across = processes / plate->blocks_down;
}

static long
rank_at (const struct plate *plate, long across, long down)
{
  if (across < 0 || across >= plate->blocks_across || down < 0 || down >= plate->blocks_down)
    return -1;
  return down * plate->blocks_across + across;
}

/* Prepares the requests for one neighbour and grid. The edata of the notice is the neighbour's side of the border. */
static void
prepare (struct job *job, struct plate *plate, enum side side, int parity)
{
  static const enum side opposite[SIDES] = { EAST, WEST, SOUTH, NORTH };
  struct neighbour *neighbour = &plate->neighbours[side];
  const size_t room = job->caps->max_toq_desc_size;
  const utofu_vcq_id_t queue = queue_of (job, neighbour->rank);
  const utofu_stadd_t target = memory_of (job, neighbour->rank, GRID_STAG + (unsigned) parity);
  const long columns = plate->across.count, rows = plate->down.count, pitch = plate->pitch;
  const long their_columns = part_of (plate->columns, plate->blocks_across, neighbour->rank % plate->blocks_across).count;
  const long their_rows = part_of (plate->rows, plate->blocks_down, neighbour->rank / plate->blocks_across).count;

  long from, to; /* first cell of the border here and of the halo there */
  switch (side)
    {
    case WEST:
      from = pitch + 1;
      to = pitch + their_columns + 1;
      break;
    case EAST:
      from = pitch + columns;
      to = pitch;
      break;
    case NORTH:
      from = pitch + 1;
      to = (their_rows + 1) * pitch + 1;
      break;
    default:
      from = rows * pitch + 1;
      to = 1;
    }
  const utofu_stadd_t source = plate->address[parity] + (utofu_stadd_t) from * sizeof (double);
  const utofu_stadd_t sink = target + (utofu_stadd_t) to * sizeof (double);

  const int is_column = side == WEST || side == EAST;
  const long puts = is_column ? rows : 1;
  for (long done = 0; done < puts; done += COLUMN_PUTS)
    {
      const long now_puts = puts - done < COLUMN_PUTS ? puts - done : COLUMN_PUTS;
      struct batch *batch = &neighbour->batches[parity][neighbour->batch_count[parity]++];
      batch->descriptors = malloc ((size_t) (now_puts + 1) * room);
      if (batch->descriptors == NULL)
        die ("halo: no memory for descriptors");
      size_t bytes = 0;
      if (is_column)
        {
          const size_t stride = (size_t) pitch * sizeof (double);
          const utofu_stadd_t passed = (utofu_stadd_t) done * stride;
          CHECK (utofu_prepare_put_stride (job->queue, queue, source + passed, sink + passed, sizeof (double), stride,
                                           (size_t) now_puts, 0, 0, batch->descriptors, &bytes));
        }
      else
        CHECK (utofu_prepare_put (job->queue, queue, source, sink, (size_t) columns * sizeof (double), 0, 0,
                                  batch->descriptors, &bytes));
      batch->bytes = bytes;
      if (done + now_puts < puts)
        continue;
      CHECK (utofu_prepare_put_piggyback8 (job->queue, queue, 1, memory_of (job, neighbour->rank, SIGNAL_STAG), 8,
                                           (uint64_t) (opposite[side] * 2 + parity),
                                           UTOFU_ONESIDED_FLAG_STRONG_ORDER | UTOFU_ONESIDED_FLAG_REMOTE_MRQ_NOTICE,
                                           (char *) batch->descriptors + bytes, &bytes));
      batch->bytes += bytes;
    }
}

/*
 * Runs all steps. The halo of a grid is written again two steps later. The neighbour has then sent the step in between, so it
 * has read the halo and has got the borders of this process.
 */
static void
run (struct job *job, struct plate *plate, long steps)
{
  uint64_t expected[2] = { 0, 0 };
  for (long step = 1; step <= steps; step++)
    {
      const int parity = (int) (step % 2);
      sweep (plate->grid[1 - parity], plate->grid[parity], plate->across.count, plate->down.count, plate->pitch);
      expected[parity]++;
      for (int side = 0; side < SIDES; side++)
        for (size_t i = 0; i < plate->neighbours[side].batch_count[parity]; i++)
          {
            const struct batch *batch = &plate->neighbours[side].batches[parity][i];
            POST (job, utofu_post_toq (job->queue, batch->descriptors, batch->bytes, NULL));
          }
      for (int side = 0; side < SIDES; side++)
        if (plate->neighbours[side].rank >= 0)
          WAIT_UNTIL (job, job->notices.arrived[side * 2 + parity] >= expected[parity], "the border of a neighbour");
    }
}

/* Largest difference from the grid that one process computes, in this block with its halo. */
static double
difference (const struct plate *plate, long steps)
{
  const struct part across = { 0, plate->columns }, down = { 0, plate->rows };
  const long pitch = plate->columns + 2;
  double *grid[2];
  for (int parity = 0; parity < 2; parity++)
    {
      grid[parity] = malloc ((size_t) (pitch * (plate->rows + 2)) * sizeof (double));
      if (grid[parity] == NULL)
        die ("halo: no memory for the whole grid");
      fill (plate, grid[parity], across, down, pitch);
    }
  for (long step = 1; step <= steps; step++)
    sweep (grid[1 - step % 2], grid[step % 2], plate->columns, plate->rows, pitch);

  const double *whole = grid[steps % 2], *block = plate->grid[steps % 2];
  double largest = 0.0;
  for (long row = 0; row <= plate->down.count + 1; row++)
    for (long column = 0; column <= plate->across.count + 1; column++)
      {
        /* No message carries the corners, and no cell depends on them. */
        if ((row == 0 || row == plate->down.count + 1) && (column == 0 || column == plate->across.count + 1))
          continue;
        const double one = whole[(plate->down.first + row) * pitch + plate->across.first + column];
        const double other = block[row * plate->pitch + column];
        const double apart = one > other ? one - other : other - one;
        if (!(apart <= largest))
          largest = apart;
      }
  free (grid[0]);
  free (grid[1]);
  return largest;
}

int
main (int argc, char **argv)
{
  struct plate plate;
  memset (&plate, 0, sizeof plate);
  plate.columns = 200;
  plate.rows = 150;
  long steps = 100;
  struct job job;
  job_begin (&job);
  if (argc > 4 || (argc > 1 && !parse_number (argv[1], 1, 65536, &plate.columns))
      || (argc > 2 && !parse_number (argv[2], 1, 65536, &plate.rows)) || (argc > 3 && !parse_number (argv[3], 1, 1000000, &steps)))
    refuse (&job, "usage: %s [COLUMNS [ROWS [STEPS]]], COLUMNS and ROWS from 1 to 65536", argv[0]);
  arrange (&plate, job.size);
  if (plate.columns < plate.blocks_across || plate.rows < plate.blocks_down)
    refuse (&job, "halo: %ld processes need at least %ld columns and %ld rows", job.size, plate.blocks_across, plate.blocks_down);
  const long across = job.rank % plate.blocks_across, down = job.rank / plate.blocks_across;
  plate.across = part_of (plate.columns, plate.blocks_across, across);
  plate.down = part_of (plate.rows, plate.blocks_down, down);
  /* The first block is the largest. One stride serves both sides of a put, so all blocks have its pitch. */
  plate.pitch = part_of (plate.columns, plate.blocks_across, 0).count + 2;

  for (int parity = 0; parity < 2; parity++)
    {
      const size_t cells = (size_t) (plate.pitch * (plate.down.count + 2));
      plate.grid[parity] = allocate_registered (&job, cells * sizeof (double), GRID_STAG + (unsigned) parity,
                                                &plate.address[parity]);
      fill (&plate, plate.grid[parity], plate.across, plate.down, plate.pitch);
    }
  utofu_stadd_t signal_address;
  void *signal = allocate_registered (&job, 8, SIGNAL_STAG, &signal_address);
  meet (&job);

  plate.neighbours[WEST].rank = rank_at (&plate, across - 1, down);
  plate.neighbours[EAST].rank = rank_at (&plate, across + 1, down);
  plate.neighbours[NORTH].rank = rank_at (&plate, across, down - 1);
  plate.neighbours[SOUTH].rank = rank_at (&plate, across, down + 1);
  for (int side = 0; side < SIDES; side++)
    for (int parity = 0; parity < 2; parity++)
      if (plate.neighbours[side].rank >= 0)
        prepare (&job, &plate, (enum side) side, parity);

  const double start = now ();
  run (&job, &plate, steps);
  const double seconds = now () - start;
  const double apart = difference (&plate, steps);
  if (!(apart == 0.0))
    die ("halo: rank %ld differs from the serial result by %g", job.rank, apart);
  meet (&job);
  if (job.rank == 0)
    printf ("halo: %ld x %ld cells in %ld x %ld blocks, %ld steps: %.2f us each, equal to the serial result\n", plate.columns,
            plate.rows, plate.blocks_across, plate.blocks_down, steps, 1e6 * seconds / (double) steps);

  for (int side = 0; side < SIDES; side++)
    for (int parity = 0; parity < 2; parity++)
      for (size_t i = 0; i < plate.neighbours[side].batch_count[parity]; i++)
        free (plate.neighbours[side].batches[parity][i].descriptors);
  free_registered (&job, signal, signal_address);
  for (int parity = 0; parity < 2; parity++)
    free_registered (&job, plate.grid[parity], plate.address[parity]);
  job_end (&job);
  return EXIT_SUCCESS;
}
