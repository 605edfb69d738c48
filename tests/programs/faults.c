/*
 * faults RANK: this rank's uTofu library fails as FAULT says (TOFU_DOUBLE, backends/doubles/tofu). All ranks put with notifications, get, add and swap, send messages, meet, and
 * register memory, and look at every byte that comes. Each says in its last line how it has ended: that all was right, or which call has failed, with what; exit status 0
 * or 3. Bytes that are wrong: status 5. For tests.
 */
#include <GASPI.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROUNDS 12
#define SEGMENT (1 << 17)
#define PART (1 << 14)

static const gaspi_size_t lengths[] = { 8, 24, 40, 3000, PART };
enum { LENGTHS = sizeof lengths / sizeof *lengths };

static gaspi_rank_t rank, ranks;

static void
must (gaspi_return_t code, const char *what)
{
  if (code == GASPI_SUCCESS)
    return;
  gaspi_string_t text = NULL;
  const gaspi_return_t known = gaspi_print_error (code, &text);
  printf ("ends: %s: %d: %s\n", what, (int) code, known == GASPI_SUCCESS && text != NULL ? text : "");
  fflush (stdout);
  exit (3);
}
#define MUST(call) must (gaspi_##call, #call)

static void
wrong (const char *what, unsigned long at, unsigned long is, unsigned long expected)
{
  printf ("wrong: %s: %lu is %#lx, not %#lx\n", what, at, is, expected);
  fflush (stdout);
  exit (5);
}

/* The byte at this place of what a rank sends in a round. */
static unsigned char
byte_of (gaspi_rank_t from, int round, gaspi_size_t at)
{
  return (unsigned char) (from * 67 + round * 13 + at * 7 + at / 251);
}

static void
fill (unsigned char *to, gaspi_rank_t from, int round, gaspi_size_t length)
{
  for (gaspi_size_t at = 0; at < length; at++)
    to[at] = byte_of (from, round, at);
}

static void
check (const char *what, const unsigned char *place, gaspi_rank_t from, int round, gaspi_size_t length)
{
  for (gaspi_size_t at = 0; at < length; at++)
    if (place[at] != byte_of (from, round, at))
      wrong (what, at, place[at], byte_of (from, round, at));
}

static unsigned char *
segment (gaspi_segment_id_t id)
{
  gaspi_pointer_t pointer;
  MUST (segment_ptr (id, &pointer));
  return pointer;
}

/* Parts of segment 0: what is put from, where it comes to, what peers read, where that comes to; words for atomic operations. */
enum { FROM = 0, COMES = PART, READ = 2 * PART, INTO = 3 * PART, WORDS = 4 * PART };

static void
round_of (int round)
{
  const gaspi_rank_t right = (gaspi_rank_t) ((rank + 1) % ranks), left = (gaspi_rank_t) ((rank + ranks - 1) % ranks);
  const gaspi_size_t length = lengths[round % LENGTHS];
  unsigned char *mine = segment (0);
  gaspi_notification_id_t first;
  gaspi_notification_t value;
  gaspi_atomic_value_t old;

  fill (mine + FROM, rank, round, length);
  fill (mine + READ, rank, round + 100, length);
  MUST (barrier (GASPI_GROUP_ALL, GASPI_BLOCK));
  MUST (write_notify (0, FROM, right, 0, COMES, length, 1, (gaspi_notification_t) round + 1, 0, GASPI_BLOCK));
  MUST (notify_waitsome (0, 1, 1, &first, GASPI_BLOCK));
  MUST (notify_reset (0, first, &value));
  if (value != (gaspi_notification_t) round + 1)
    wrong ("a notification", 1, value, (unsigned long) round + 1);
  check ("put", mine + COMES, left, round, length);

  memset (mine + INTO, 0, length);
  MUST (read (0, INTO, left, 0, READ, length, 1, GASPI_BLOCK));
  MUST (wait (1, GASPI_BLOCK));
  check ("get", mine + INTO, left, round + 100, length);

  MUST (atomic_fetch_add (0, WORDS, 0, 1, &old, GASPI_BLOCK));
  if (old >= (gaspi_atomic_value_t) ranks * ROUNDS)
    wrong ("a sum", 0, old, 0);
  MUST (atomic_compare_swap (0, WORDS + 64, right, (gaspi_atomic_value_t) round, (gaspi_atomic_value_t) round + 1, &old, GASPI_BLOCK));
  if (old != (gaspi_atomic_value_t) round)
    wrong ("a word that is swapped", 0, old, (unsigned long) round);

  /* Messages: long ones every other time. */
  const gaspi_size_t size = round % 2 == 0 ? 96 : 6000;
  gaspi_rank_t sender;
  fill (mine + FROM, rank, round + 50, size);
  if (rank == 0)
    MUST (passive_send (0, FROM, right, size, GASPI_BLOCK));
  MUST (passive_receive (0, COMES, &sender, size, GASPI_BLOCK));
  if (rank != 0)
    MUST (passive_send (0, FROM, right, size, GASPI_BLOCK));
  if (sender != left)
    wrong ("a sender", 0, sender, left);
  check ("message", mine + COMES, left, round + 50, size);
  MUST (wait (0, GASPI_BLOCK));
}

/* Memory that comes and goes while peers use it. */
static void
registrations (gaspi_group_t group)
{
  for (gaspi_segment_id_t id = 1; id < 4; id++)
    {
      const gaspi_rank_t right = (gaspi_rank_t) ((rank + 1) % ranks), left = (gaspi_rank_t) ((rank + ranks - 1) % ranks);
      gaspi_notification_id_t first;
      MUST (segment_create (id, SEGMENT, group, GASPI_BLOCK, GASPI_MEM_INITIALIZED));
      fill (segment (id), rank, id, PART);
      MUST (write_notify (id, 0, right, id, PART, PART, 0, 1, 0, GASPI_BLOCK));
      MUST (notify_waitsome (id, 0, 1, &first, GASPI_BLOCK));
      check ("put into a new segment", segment (id) + PART, left, id, PART);
      MUST (wait (0, GASPI_BLOCK));
      MUST (barrier (group, GASPI_BLOCK));
      MUST (segment_delete (id));
    }
}

int
main (int argc, char *argv[])
{
  const char *fault = getenv ("FAULT"), *here = getenv ("UNIPGAS_RANK");
  gaspi_group_t group;

  if (argc != 2 || fault == NULL || here == NULL)
    return 2;
  /* Before the library's first call, at which it reads this. */
  if (strcmp (here, argv[1]) == 0)
    setenv ("TOFU_DOUBLE", fault, 1);
  MUST (proc_init (GASPI_BLOCK));
  MUST (proc_rank (&rank));
  MUST (proc_num (&ranks));
  MUST (segment_create (0, SEGMENT, GASPI_GROUP_ALL, GASPI_BLOCK, GASPI_MEM_INITIALIZED));
  MUST (group_create (&group));
  for (gaspi_rank_t member = 0; member < ranks; member++)
    MUST (group_add (group, member));
  MUST (group_commit (group, GASPI_BLOCK));
  for (int round = 0; round < ROUNDS; round++)
    {
      round_of (round);
      MUST (barrier (group, GASPI_BLOCK));
      unsigned long mine = (unsigned long) rank + 1 + (unsigned long) round, sum = 0;
      MUST (allreduce (&mine, &sum, 1, GASPI_OP_SUM, GASPI_TYPE_ULONG, group, GASPI_BLOCK));
      const unsigned long all = (unsigned long) ranks * (ranks + 1) / 2 + (unsigned long) ranks * (unsigned long) round;
      if (sum != all)
        wrong ("a sum of all", 0, sum, all);
    }
  gaspi_atomic_value_t count;
  MUST (atomic_fetch_add (0, WORDS, 0, 0, &count, GASPI_BLOCK));
  if (count != (gaspi_atomic_value_t) ranks * ROUNDS)
    wrong ("the sum", 0, count, (unsigned long) ranks * ROUNDS);
  registrations (group);
  MUST (barrier (GASPI_GROUP_ALL, GASPI_BLOCK));
  MUST (group_delete (group));
  MUST (segment_delete (0));
  MUST (proc_term (GASPI_BLOCK));
  printf ("right\n");
  return 0;
}
