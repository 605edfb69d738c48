/*
 * Heat in a rod. The program survives the death of processes and hosts:
 *
 *   unipgas run -n 4 --spares 2 resilient
 *   unipgas run --hosts a,b,c -n 6 --spares 2 --launcher ssh resilient 4000 400 1 1 host
 *
 * resilient [CELLS [STEPS [DEATHS [SEED [WHAT]]]]]
 *
 * Each process has a part of the cells. At regular steps all make a checkpoint: each process writes its cells into the memory of
 * its keeper, a process of another host if there is one. At steps that depend on the seed, a process kills itself. With the word
 * "host" it kills the launcher of its host, and all processes there end. Without spares DEATHS must be 0.
 *
 * After an error of any call, the survivors wait until new processes have replaced the dead ones. The new processes read their
 * checkpoints from their keepers, all return to the last step that all have kept, and continue. After another death meanwhile,
 * the recovery starts again. At the end rank 0 computes the same alone: the cells must agree to the last bit. A job of one
 * process has no keeper, so its process does not die.
 */
#define _DEFAULT_SOURCE
#include "success_or_die.h"

#include <GASPI_Ext.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

enum
{
  FIELDS = 0,
  KEPT = 1,
  ALL_CELLS = 2,
  QUEUE = 0
};

/* Notifications: a halo cell has arrived, from the left or the right. */
enum
{
  FROM_LEFT = 0,
  FROM_RIGHT = 1
};

/* Steps between two checkpoints. */
enum
{
  OFTEN = 20
};

/* A checkpoint: the number of the next step, and the cells. Two are kept in turn, so that one is always complete. */
typedef struct
{
  long step;
  double cells[];
} checkpoint_t;

typedef struct
{
  gaspi_rank_t rank, processes;
  long all_cells, steps, deaths, seed;
  long first, cells;      /* the part of this process */
  double *field;          /* with a halo cell at each end */
  char *own;              /* two checkpoints of this process, and two of the process that it keeps */
  long far;               /* distance from a process to its keeper, in ranks */
  long recovered;         /* deaths so far */
} rod_t;

/* For the calls of a step: an error of a call is an error of the step. */
#define TRY(call) \
  do \
    { \
      const gaspi_return_t code = (call); \
      if (code != GASPI_SUCCESS) \
        return code; \
    } \
  while (0)

static long
first_of (const rod_t *rod, long rank)
{
  return rod->all_cells * rank / rod->processes;
}

/* The size of the longest part, on all processes. */
static gaspi_size_t
bytes_of_checkpoint (const rod_t *rod)
{
  return sizeof (checkpoint_t) + (gaspi_size_t) (rod->all_cells / rod->processes + 1) * sizeof (double);
}

static checkpoint_t *
checkpoint (const rod_t *rod, char *of, long which)
{
  return (checkpoint_t *) (of + (gaspi_size_t) which * bytes_of_checkpoint (rod));
}

static gaspi_rank_t
keeper_of (const rod_t *rod)
{
  return (gaspi_rank_t) ((rod->rank + rod->far) % rod->processes);
}

/* The step of the nth death, and its victim. */
static long
drawn (const rod_t *rod, long nth, long *victim)
{
  unsigned long random = (unsigned long) (rod->seed * 1000 + nth) * 6364136223846793005UL + 1442695040888963407UL;
  random ^= random >> 29;
  random *= 0xbf58476d1ce4e5b9UL;
  random ^= random >> 32;
  *victim = (long) (random % rod->processes);
  /* Each death has its own share of the steps. */
  const long share = rod->steps / rod->deaths;
  return nth * share + (long) (random / rod->processes % (unsigned long) share);
}

static double
next_value (double left, double own, double right)
{
  return own + 0.25 * (left - own + (right - own));
}

/* Exchanges halo cells with the neighbours. One end of the rod is hot, the other one cold. */
static gaspi_return_t
exchange (const rod_t *rod)
{
  const gaspi_size_t cell = sizeof (double);
  double *field = rod->field;
  const int has_left = rod->rank > 0, has_right = rod->rank + 1 < rod->processes;
  if (!has_left)
    field[0] = 1.0;
  if (!has_right)
    field[rod->cells + 1] = 0.0;
  if (has_left)
    {
      const long left_cells = rod->first - first_of (rod, rod->rank - 1);
      TRY (gaspi_write_notify (FIELDS, cell, rod->rank - 1, FIELDS, (gaspi_offset_t) (left_cells + 1) * cell, cell, FROM_RIGHT,
                               1, QUEUE, GASPI_BLOCK));
    }
  if (has_right)
    TRY (gaspi_write_notify (FIELDS, (gaspi_offset_t) rod->cells * cell, rod->rank + 1, FIELDS, 0, cell, FROM_LEFT, 1, QUEUE,
                             GASPI_BLOCK));
  for (int missing = has_left + has_right; missing > 0; missing--)
    {
      gaspi_notification_id_t id;
      gaspi_notification_t value;
      TRY (gaspi_notify_waitsome (FIELDS, FROM_LEFT, 2, &id, GASPI_BLOCK));
      TRY (gaspi_notify_reset (FIELDS, id, &value));
    }
  return gaspi_wait (QUEUE, GASPI_BLOCK);
}

/* Writes a checkpoint to the keeper: first the cells, and after their arrival the step. */
static gaspi_return_t
send_checkpoint (const rod_t *rod, long which)
{
  const gaspi_size_t size = bytes_of_checkpoint (rod);
  const gaspi_offset_t from = (gaspi_offset_t) which * size, to = (gaspi_offset_t) (2 + which) * size;
  const gaspi_size_t head = sizeof (checkpoint_t);
  TRY (gaspi_write (KEPT, from + head, keeper_of (rod), KEPT, to + head, (gaspi_size_t) rod->cells * sizeof (double), QUEUE,
                    GASPI_BLOCK));
  TRY (gaspi_wait (QUEUE, GASPI_BLOCK));
  TRY (gaspi_write (KEPT, from, keeper_of (rod), KEPT, to, head, QUEUE, GASPI_BLOCK));
  return gaspi_wait (QUEUE, GASPI_BLOCK);
}

static void
keep (const rod_t *rod, long next_step, long which)
{
  checkpoint_t *own = checkpoint (rod, rod->own, which);
  memcpy (own->cells, rod->field + 1, (size_t) rod->cells * sizeof (double));
  own->step = next_step;
}

static gaspi_return_t
step (const rod_t *rod, long at)
{
  TRY (exchange (rod));
  double left = rod->field[0];
  for (long cell = 1; cell <= rod->cells; cell++)
    {
      const double own = rod->field[cell];
      rod->field[cell] = next_value (left, own, rod->field[cell + 1]);
      left = own;
    }
  if ((at + 1) % OFTEN == 0)
    {
      const long which = (at + 1) / OFTEN % 2;
      keep (rod, at + 1, which);
      TRY (send_checkpoint (rod, which));
    }
  /* The barrier keeps all processes within one step. */
  return gaspi_barrier (GASPI_GROUP_ALL, GASPI_BLOCK);
}

static void
allocate (rod_t *rod)
{
  const gaspi_size_t fields = (gaspi_size_t) (rod->all_cells / rod->processes + 3) * sizeof (double);
  SUCCESS_OR_DIE (gaspi_segment_alloc (FIELDS, fields, GASPI_MEM_INITIALIZED));
  SUCCESS_OR_DIE (gaspi_segment_alloc (KEPT, 4 * bytes_of_checkpoint (rod), GASPI_MEM_INITIALIZED));
  gaspi_pointer_t field, kept;
  SUCCESS_OR_DIE (gaspi_segment_ptr (FIELDS, &field));
  SUCCESS_OR_DIE (gaspi_segment_ptr (KEPT, &kept));
  rod->field = field;
  rod->own = kept;
}

static gaspi_return_t
offer (const rod_t *rod)
{
  for (gaspi_rank_t rank = 0; rank < rod->processes; rank++)
    {
      TRY (gaspi_segment_register (FIELDS, rank, GASPI_BLOCK));
      TRY (gaspi_segment_register (KEPT, rank, GASPI_BLOCK));
    }
  return GASPI_SUCCESS;
}

/* Waits until new processes have replaced the dead ones. */
static void
await_replacement (const rod_t *rod)
{
  gaspi_state_vector_t states = malloc (rod->processes * sizeof *states);
  int dead = 1, seen = 0;
  while (states != NULL && (dead || !seen))
    {
      SUCCESS_OR_DIE (gaspi_state_vec_get (states));
      dead = 0;
      for (gaspi_rank_t rank = 0; rank < rod->processes; rank++)
        dead |= states[rank] == GASPI_STATE_CORRUPT;
      seen |= dead;
      usleep (1000);
    }
  free (states);
}

static gaspi_return_t
reduce (long *value, gaspi_operation_t operation)
{
  const long own = *value;
  return gaspi_allreduce (&own, value, 1, operation, GASPI_TYPE_LONG, GASPI_GROUP_ALL, GASPI_BLOCK);
}

/* The distance is the number of ranks on a host, so the keeper is on another host if there is one. */
static gaspi_return_t
agree_on_keepers (rod_t *rod)
{
  gaspi_rank_t neighbours;
  TRY (gaspi_proc_local_num (&neighbours));
  /* New processes get the distance of the others. */
  if (rod->far == 0 && rod->recovered == 0)
    rod->far = neighbours < rod->processes ? neighbours : 1;
  return reduce (&rod->far, GASPI_OP_MAX);
}

/* Returns to the last step that all processes have kept. */
static gaspi_return_t
go_back (rod_t *rod, int is_new, long *at)
{
  gaspi_notification_t value;
  const gaspi_size_t size = bytes_of_checkpoint (rod);
  if (is_new)
    TRY (offer (rod));
  /* Requests to the dead process have failed. */
  TRY (gaspi_queue_purge (QUEUE, GASPI_BLOCK));
  TRY (gaspi_group_commit (GASPI_GROUP_ALL, GASPI_BLOCK));
  TRY (gaspi_notify_reset (FIELDS, FROM_LEFT, &value));
  TRY (gaspi_notify_reset (FIELDS, FROM_RIGHT, &value));
  TRY (reduce (&rod->recovered, GASPI_OP_MAX));
  TRY (agree_on_keepers (rod));
  if (is_new)
    {
      TRY (gaspi_read (KEPT, 0, keeper_of (rod), KEPT, 2 * size, 2 * size, QUEUE, GASPI_BLOCK));
      TRY (gaspi_wait (QUEUE, GASPI_BLOCK));
    }
  const long kept[] = { checkpoint (rod, rod->own, 0)->step, checkpoint (rod, rod->own, 1)->step };
  *at = kept[0] > kept[1] ? kept[0] : kept[1];
  TRY (reduce (at, GASPI_OP_MIN));
  const long which = *at / OFTEN % 2;
  if (kept[which] != *at)
    {
      fprintf (stderr, "rank %d has kept nothing of step %ld: its keeper has died, too\n", rod->rank, *at);
      exit (EXIT_FAILURE);
    }
  memcpy (rod->field + 1, checkpoint (rod, rod->own, which)->cells, (size_t) rod->cells * sizeof (double));
  /* The new processes are keepers without checkpoints. */
  TRY (send_checkpoint (rod, which));
  return gaspi_barrier (GASPI_GROUP_ALL, GASPI_BLOCK);
}

static long
recover (rod_t *rod, int is_new)
{
  long at;
  rod->recovered += !is_new;
  while (go_back (rod, is_new, &at) != GASPI_SUCCESS)
    await_replacement (rod);
  return at;
}

static gaspi_return_t
begin (rod_t *rod)
{
  TRY (offer (rod));
  TRY (gaspi_barrier (GASPI_GROUP_ALL, GASPI_BLOCK));
  TRY (agree_on_keepers (rod));
  /* A checkpoint of the start. The memory is zero, so its step is 0 already. */
  keep (rod, 0, 0);
  TRY (send_checkpoint (rod, 0));
  return gaspi_barrier (GASPI_GROUP_ALL, GASPI_BLOCK);
}

/* Compares the result with that of one process. */
static int
agrees (const rod_t *rod, const double *found)
{
  double *field = calloc ((size_t) rod->all_cells + 2, sizeof *field);
  if (field == NULL)
    return 0;
  field[0] = 1.0;
  for (long at = 0; at < rod->steps; at++)
    {
      double left = field[0];
      for (long cell = 1; cell <= rod->all_cells; cell++)
        {
          const double own = field[cell];
          field[cell] = next_value (left, own, field[cell + 1]);
          left = own;
        }
    }
  const int same = memcmp (field + 1, found, (size_t) rod->all_cells * sizeof *found) == 0;
  free (field);
  return same;
}

int
main (int argc, char *argv[])
{
  int hosts_die = 0;
  rod_t rod = { .all_cells = 4000, .steps = 400, .deaths = 2, .seed = 1 };
  gaspi_number_t incarnation;
  SUCCESS_OR_DIE (gaspi_proc_init (GASPI_BLOCK));
  SUCCESS_OR_DIE (gaspi_proc_rank (&rod.rank));
  SUCCESS_OR_DIE (gaspi_proc_num (&rod.processes));
  SUCCESS_OR_DIE (gaspi_proc_incarnation (&incarnation));
  if ((argc > 1 && !parse_number (argv[1], rod.processes, 100000000, &rod.all_cells))
      || (argc > 2 && !parse_number (argv[2], 2 * OFTEN, 1000000, &rod.steps))
      || (argc > 3 && !parse_number (argv[3], 0, rod.steps / OFTEN, &rod.deaths))
      || (argc > 4 && !parse_number (argv[4], 0, 1000000, &rod.seed))
      || (argc > 5 && !(hosts_die = strcmp (argv[5], "host") == 0) && strcmp (argv[5], "process") != 0) || argc > 6)
    {
      if (rod.rank == 0)
        fprintf (stderr, "usage: resilient [CELLS [STEPS [DEATHS [SEED [process|host]]]]]\n");
      leave ();
      return EXIT_FAILURE;
    }
  if (rod.processes == 1)
    rod.deaths = 0;
  rod.first = first_of (&rod, rod.rank);
  rod.cells = first_of (&rod, rod.rank + 1) - rod.first;
  allocate (&rod);
  long at = 0;
  if (incarnation > 0)
    at = recover (&rod, 1);
  else
    SUCCESS_OR_DIE (begin (&rod));
  while (at < rod.steps)
    {
      long victim = -1;
      if (rod.recovered < rod.deaths && at == drawn (&rod, rod.recovered, &victim) && victim == rod.rank)
        {
          printf ("rank %d dies before step %ld\n", rod.rank, at);
          fflush (stdout);
          if (hosts_die)
            kill (getppid (), SIGKILL);
          else
            raise (SIGKILL);
          pause ();
        }
      const gaspi_return_t code = step (&rod, at);
      if (code == GASPI_SUCCESS)
        {
          at++;
          continue;
        }
      await_replacement (&rod);
      at = recover (&rod, 0);
      if (rod.rank == 0)
        printf ("%ld of %ld have died; going on with step %ld\n", rod.recovered, rod.deaths, at);
    }
  /* Collects all cells at rank 0. */
  SUCCESS_OR_DIE (gaspi_segment_create (ALL_CELLS, (gaspi_size_t) rod.all_cells * sizeof (double), GASPI_GROUP_ALL, GASPI_BLOCK,
                                        GASPI_MEM_INITIALIZED));
  POST (QUEUE, gaspi_write (FIELDS, sizeof (double), 0, ALL_CELLS, (gaspi_offset_t) rod.first * sizeof (double),
                            (gaspi_size_t) rod.cells * sizeof (double), QUEUE, GASPI_BLOCK));
  SUCCESS_OR_DIE (gaspi_wait (QUEUE, GASPI_BLOCK));
  SUCCESS_OR_DIE (gaspi_barrier (GASPI_GROUP_ALL, GASPI_BLOCK));
  int right = 1;
  if (rod.rank == 0)
    {
      gaspi_pointer_t found;
      SUCCESS_OR_DIE (gaspi_segment_ptr (ALL_CELLS, &found));
      right = agrees (&rod, found);
      printf ("resilient: %ld cells, %ld steps, %ld deaths: %s\n", rod.all_cells, rod.steps, rod.recovered,
              right ? "the same as one process alone" : "WRONG");
    }
  leave ();
  return right ? EXIT_SUCCESS : EXIT_FAILURE;
}
