/*
 * Broadcast from rank 0 through a binary tree, in chunks. Ranks with children post the puts to them in advance, into a queue in
 * session mode. Each arriving chunk starts one put for each child. Such a put carries the number of puts that it starts at the
 * child. So relays only poll their memory; they call no function of the library until all data has arrived.
 *
 * A chunk ends with a stamp. The put has strong order, so the last cache line, with the stamp, is written last.
 *
 * broadcast_tree [BYTES [CHUNKS [ROUNDS]]]
 */
#define _POSIX_C_SOURCE 200809L

#include "job.h"

enum
{
  DATA_STAG = 1, /* also in the queue of job_begin(), on a rank without another queue */
  CHILDREN_STAG = 2,
  CHILDREN = 2
};

/* The message of a child to its parent. */
struct child
{
  uint64_t queue;   /* target of the puts */
  uint64_t address; /* address of the data */
  uint64_t steps;   /* number of puts that each chunk starts at the child */
};

struct tree
{
  long parent; /* -1: the root */
  long first_child, children;
  utofu_vcq_hdl_t queue; /* the data is registered for this queue */
  unsigned char *data;
  utofu_stadd_t address;
  struct child *child;
  size_t chunk_bytes;
  long chunks;
};

static unsigned char
byte_of (long round, size_t index)
{
  return (unsigned char) (index * 11 + index / 253 + (size_t) round * 29);
}

static uint64_t
stamp_of (long round, long chunk)
{
  return ((uint64_t) round << 32 | (uint64_t) chunk) + 1;
}

static uint64_t *
stamp_at (const struct tree *tree, long chunk)
{
  return (uint64_t *) (void *) (tree->data + (size_t) (chunk + 1) * tree->chunk_bytes - sizeof (uint64_t));
}

/* Polls the queue of a relay, for errors and to make room for the next round. There are no other notices. */
static void
look_for_errors (const struct tree *tree)
{
  void *data;
  int code = utofu_poll_tcq (tree->queue, 0, &data);
  if (code != UTOFU_ERR_NOT_FOUND)
    check (__FILE__, __LINE__, "utofu_poll_tcq", code);
  struct utofu_mrq_notice notice;
  code = utofu_poll_mrq (tree->queue, 0, &notice);
  if (code != UTOFU_ERR_NOT_FOUND)
    check (__FILE__, __LINE__, "utofu_poll_mrq", code);
}

/* Posts one put for each chunk and child. At the root it starts at once, at a relay when the chunk arrives. */
static void
post_puts (struct job *job, const struct tree *tree)
{
  for (long chunk = 0; chunk < tree->chunks; chunk++)
    for (long i = 0; i < tree->children; i++)
      {
        const struct child *child = &tree->child[i];
        const size_t offset = (size_t) chunk * tree->chunk_bytes;
        const unsigned long flags = UTOFU_ONESIDED_FLAG_STRONG_ORDER | UTOFU_ONESIDED_FLAG_SPS (child->steps);
        if (tree->parent < 0)
          POST (job, utofu_put (tree->queue, child->queue, tree->address + offset, child->address + offset,
                                tree->chunk_bytes, 0, flags, NULL));
        else
          CHECK (utofu_put (tree->queue, child->queue, tree->address + offset, child->address + offset,
                            tree->chunk_bytes, 0, flags, NULL));
      }
}

/* Rank 0 fills its memory. The others clear theirs, so the check detects data of the previous round. */
static void
begin_round (const struct tree *tree, long round)
{
  const size_t bytes = tree->chunk_bytes * (size_t) tree->chunks;
  if (tree->parent >= 0)
    {
      memset (tree->data, 0, bytes);
      return;
    }
  for (size_t i = 0; i < bytes; i++)
    tree->data[i] = byte_of (round, i);
  for (long chunk = 0; chunk < tree->chunks; chunk++)
    *stamp_at (tree, chunk) = stamp_of (round, chunk);
}

static void
await_data (const struct tree *tree, long round)
{
  struct patience patience = { 0, 0.0 };
  for (long chunk = 0; chunk < tree->chunks; chunk++)
    while (load_word (stamp_at (tree, chunk)) != stamp_of (round, chunk))
      rest (&patience, "a chunk of the broadcast");
}

static void
compare (const struct job *job, const struct tree *tree, long round)
{
  for (long chunk = 0; chunk < tree->chunks; chunk++)
    for (size_t i = 0; i < tree->chunk_bytes - sizeof (uint64_t); i++)
      {
        const size_t index = (size_t) chunk * tree->chunk_bytes + i;
        if (tree->data[index] != byte_of (round, index))
          die ("broadcast_tree: byte %zu is wrong at rank %ld in round %ld", index, job->rank, round);
      }
}

/* Creates the queue of a relay, registers the data and sends both to the parent. */
static void
grow (struct job *job, struct tree *tree)
{
  tree->parent = job->rank == 0 ? -1 : (job->rank - 1) / CHILDREN;
  tree->first_child = job->rank * CHILDREN + 1;
  const long below = job->size - tree->first_child;
  tree->children = below < 0 ? 0 : below < CHILDREN ? below : CHILDREN;

  utofu_stadd_t children_address;
  tree->child = allocate_registered (job, CHILDREN * sizeof *tree->child, CHILDREN_STAG, &children_address);
  meet (job);

  size_t rounded;
  tree->data = allocate (job, tree->chunk_bytes * (size_t) tree->chunks, &rounded);
  tree->queue = job->queue;
  if (tree->parent >= 0 && tree->children > 0)
    CHECK (utofu_create_vcq (job->tni, UTOFU_VCQ_FLAG_SESSION_MODE, &tree->queue));
  CHECK (utofu_reg_mem_with_stag (tree->queue, tree->data, rounded, DATA_STAG, 0, &tree->address));

  if (tree->parent >= 0)
    {
      struct child me = { 0, tree->address, (uint64_t) tree->children };
      CHECK (utofu_query_vcq_id (tree->queue, &me.queue));
      const size_t place = (size_t) ((job->rank - 1) % CHILDREN) * sizeof me;
      const uint64_t done = job->notices.done[1];
      POST (job, utofu_put_piggyback (job->queue, queue_of (job, tree->parent), &me,
                                      memory_of (job, tree->parent, CHILDREN_STAG) + place, sizeof me, 1,
                                      UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE, NULL));
      WAIT_UNTIL (job, job->notices.done[1] != done, "the parent's memory");
    }
  meet (job);
  CHECK (utofu_dereg_mem (job->queue, children_address, 0));
}

int
main (int argc, char **argv)
{
  long bytes = 1 << 20, chunks = 16, rounds = 10;
  struct job job;
  job_begin (&job);
  if (argc > 4 || (argc > 1 && !parse_number (argv[1], 1, 1L << 28, &bytes))
      || (argc > 2 && !parse_number (argv[2], 1, 200, &chunks)) || (argc > 3 && !parse_number (argv[3], 1, 100000, &rounds)))
    refuse (&job, "usage: %s [BYTES [CHUNKS [ROUNDS]]], BYTES up to 268435456, CHUNKS up to 200", argv[0]);
  if (job.size < 2)
    refuse (&job, "broadcast_tree: needs two processes");
  if ((job.caps->flags & UTOFU_ONESIDED_CAP_FLAG_SESSION_MODE) == 0)
    refuse (&job, "broadcast_tree: the interface has no session mode");

  /* Whole cache lines, so that each stamp is in the last line of its chunk. */
  struct tree tree;
  memset (&tree, 0, sizeof tree);
  const size_t line = job.caps->cache_line_size;
  tree.chunks = chunks;
  tree.chunk_bytes = ((size_t) (bytes + chunks - 1) / (size_t) chunks + sizeof (uint64_t) + line - 1) / line * line;
  if (tree.chunk_bytes > job.caps->max_putget_size)
    refuse (&job, "broadcast_tree: a chunk has at most %zu bytes here: use more chunks", job.caps->max_putget_size);
  grow (&job, &tree);

  double seconds = 0.0;
  for (long round = 1; round <= rounds; round++)
    {
      begin_round (&tree, round);
      if (tree.parent >= 0)
        post_puts (&job, &tree);
      /* All relays have to be ready before the first chunk leaves. */
      meet (&job);
      const double start = now ();
      if (tree.parent < 0)
        post_puts (&job, &tree);
      else
        await_data (&tree, round);
      meet (&job);
      seconds += now () - start;
      compare (&job, &tree, round);
      if (tree.queue != job.queue)
        look_for_errors (&tree);
    }
  if (job.rank == 0)
    printf ("broadcast_tree: %ld bytes in %ld chunks to %ld processes: %.1f us for each of %ld rounds, all bytes compared\n", bytes,
            chunks, job.size, 1e6 * seconds / (double) rounds, rounds);

  CHECK (utofu_dereg_mem (tree.queue, tree.address, 0));
  if (tree.queue != job.queue)
    CHECK (utofu_free_vcq (tree.queue));
  free (tree.child);
  free (tree.data);
  job_end (&job);
  return EXIT_SUCCESS;
}
