/*
 * Helpers of the examples without MPI: the processes of a job find each other. Rank and size are in the environment (unipgas run
 * sets UNIPGAS_RANK and UNIPGAS_SIZE; other launchers set other variables). Rank r is at the r-th node of the mesh. If k processes
 * share a node (UNIPGAS_TOFU_PPN=k), ranks fill one node after the other, and the i-th process of a node has the CQs i, i + k,
 * i + 2k and so on. All other values are computed: the id of a peer's queue from its coordinates, its first CQ and a component id,
 * and the address of its memory from the id and a STag.
 */
#ifndef JOB_H
#define JOB_H

#include "check.h"

#include <string.h>

enum
{
  COORDINATES = 6,
  COMPONENT = 0,     /* component id of the queues */
  BOARD_STAG = 0,    /* memory in which the processes meet */
  BOARD_WORDS = 64,  /* one word for each round of a meeting */
  MEETING_EDATA = 255
};

/** Numbers of notices, by the edata of the request. */
struct notices
{
  uint64_t sent;         /* notices of the TCQ */
  uint64_t done[256];    /* complete requests of this process */
  uint64_t refused[256]; /* requests of this process without a target */
  uint64_t arrived[256]; /* requests of peers */
  uint64_t old_value;    /* result of the last atomic operation */
};

struct job
{
  long rank;
  long size;
  long shape[COORDINATES];
  long sharers; /* processes of a node */
  utofu_tni_id_t tni;
  const struct utofu_onesided_caps *caps;
  utofu_vcq_hdl_t queue;
  struct notices notices;
  uint64_t *board;
  utofu_stadd_t board_address;
  uint64_t meetings;
};

/** Takes all notices from the queue. Call it regularly, even if no notice is expected: a full TCQ or MRQ blocks requests. */
static inline void
progress (struct job *job)
{
  struct notices *notices = &job->notices;
  for (;;)
    {
      void *data;
      const int code = utofu_poll_tcq (job->queue, 0, &data);
      if (code == UTOFU_ERR_NOT_FOUND)
        break;
      CHECK (code);
      notices->sent++;
    }
  for (;;)
    {
      struct utofu_mrq_notice notice;
      const int code = utofu_poll_mrq (job->queue, 0, &notice);
      if (code == UTOFU_ERR_NOT_FOUND)
        break;
      const unsigned edata = notice.edata & 255;
      /* A peer of a meeting may not have begun yet. For other requests this is an error. */
      if (edata == MEETING_EDATA && (code == UTOFU_ERR_MRQ_PEER || code == UTOFU_ERR_MRQ_RMT_STADD))
        {
          notices->refused[edata]++;
          continue;
        }
      check (__FILE__, __LINE__, "utofu_poll_mrq", code);
      switch (notice.notice_type)
        {
        case UTOFU_MRQ_TYPE_LCL_ARMW:
          notices->old_value = notice.rmt_value;
          notices->done[edata]++;
          break;
        case UTOFU_MRQ_TYPE_LCL_PUT:
        case UTOFU_MRQ_TYPE_LCL_GET:
          notices->done[edata]++;
          break;
        default:
          notices->arrived[edata]++;
        }
    }
}

/** Polls until a condition holds. */
#define WAIT_UNTIL(job, condition, awaited) \
  do \
    { \
      struct patience patience = { 0, 0.0 }; \
      while (!(condition)) \
        { \
          progress (job); \
          rest (&patience, (awaited)); \
        } \
    } \
  while (0)

/** Starts a request as soon as the queue has room. */
#define POST(job, call) \
  do \
    { \
      struct patience patience = { 0, 0.0 }; \
      int posted; \
      while ((posted = (call)) == UTOFU_ERR_BUSY) \
        { \
          progress (job); \
          rest (&patience, "room in the queue"); \
        } \
      check (__FILE__, __LINE__, #call, posted); \
    } \
  while (0)

static inline void
coordinates_of (const struct job *job, long rank, uint8_t coordinates[COORDINATES])
{
  long node = rank / job->sharers;
  for (int axis = COORDINATES - 1; axis >= 0; axis--)
    {
      coordinates[axis] = (uint8_t) (node % job->shape[axis]);
      node /= job->shape[axis];
    }
}

/** Id of the queue that a rank has created, or will create, in job_begin(). */
static inline utofu_vcq_id_t
queue_of (const struct job *job, long rank)
{
  uint8_t coordinates[COORDINATES];
  coordinates_of (job, rank, coordinates);
  utofu_vcq_id_t id;
  const utofu_cq_id_t first_cq = (utofu_cq_id_t) (rank % job->sharers);
  CHECK (utofu_construct_vcq_id (coordinates, job->tni, first_cq, COMPONENT, &id));
  return id;
}

/** Begin of the memory that a rank has registered, or will register, under a STag. */
static inline utofu_stadd_t
memory_of (const struct job *job, long rank, unsigned stag)
{
  utofu_stadd_t address;
  CHECK (utofu_query_stadd (queue_of (job, rank), stag, &address));
  return address;
}

/** Allocates at least `bytes` bytes of zeros, with the alignment for registration. */
static inline void *
allocate (const struct job *job, size_t bytes, size_t *rounded)
{
  const size_t unit = job->caps->stag_address_alignment;
  *rounded = (bytes + unit - 1) / unit * unit;
  void *memory = NULL;
  if (posix_memalign (&memory, unit, *rounded) != 0)
    die ("no memory for %zu bytes", bytes);
  memset (memory, 0, *rounded);
  return memory;
}

/** Allocates at least `bytes` bytes and registers them under a STag. */
static inline void *
allocate_registered (const struct job *job, size_t bytes, unsigned stag, utofu_stadd_t *address)
{
  size_t rounded;
  void *memory = allocate (job, bytes, &rounded);
  CHECK (utofu_reg_mem_with_stag (job->queue, memory, rounded, stag, 0, address));
  return memory;
}

static inline void
free_registered (const struct job *job, void *memory, utofu_stadd_t address)
{
  CHECK (utofu_dereg_mem (job->queue, address, 0));
  free (memory);
}

/** Writes a word to the board of a rank, and retries until that rank has a queue and a board. */
static inline void
put_when_there (struct job *job, long rank, size_t word, uint64_t value)
{
  struct notices *notices = &job->notices;
  const utofu_stadd_t target = memory_of (job, rank, BOARD_STAG) + word * sizeof (uint64_t);
  struct patience patience = { 0, 0.0 };
  for (;;)
    {
      const uint64_t done = notices->done[MEETING_EDATA], refused = notices->refused[MEETING_EDATA];
      POST (job, utofu_put_piggyback8 (job->queue, queue_of (job, rank), value, target, sizeof value, MEETING_EDATA,
                                       UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE, NULL));
      WAIT_UNTIL (job, notices->done[MEETING_EDATA] != done || notices->refused[MEETING_EDATA] != refused,
                  "an answer in a meeting");
      if (notices->done[MEETING_EDATA] != done)
        return;
      const struct timespec pause = { 0, 1000000 };
      nanosleep (&pause, NULL);
      /* rest() reads the clock once in 128 polls. */
      for (int i = 0; i < 128; i++)
        rest (&patience, "a peer that has not begun");
    }
}

/** Returns when all processes have called it. Their earlier writes with notice have then arrived. */
static inline void
meet (struct job *job)
{
  job->meetings++;
  size_t round = 0;
  for (long distance = 1; distance < job->size; distance *= 2, round++)
    {
      put_when_there (job, (job->rank + distance) % job->size, round, job->meetings);
      WAIT_UNTIL (job, load_word (&job->board[round]) >= job->meetings, "a peer in a meeting");
    }
}

/* If `fallback` is less than `min`, the variable or one of `others`, which other launchers set, is required. */
static inline long
number_from_environment (const char *name, const char *const *others, long min, long max, long fallback)
{
  const char *text = getenv (name);
  for (const char *const *other = others; text == NULL && other != NULL && *other != NULL; other++)
    text = getenv (*other);
  if (text == NULL && fallback >= min)
    return fallback;
  if (text == NULL)
    die ("%s is not set: start this program with unipgas run", name);
  long number = 0;
  if (!parse_number (text, min, max, &number))
    die ("%s=%s: a number from %ld to %ld is needed", name, text, min, max);
  return number;
}

/** Reads the shape of the mesh, like 1x1x1x2x3x2, from the environment, which unipgas run sets. */
static inline void
read_shape (struct job *job)
{
  const long needed = (job->size + job->sharers - 1) / job->sharers;
  const char *text = getenv ("UNIPGAS_TOFU_SHAPE");
  if (text == NULL && needed > 12)
    die ("UNIPGAS_TOFU_SHAPE is not set, which is needed for more than 12 nodes");
  if (text == NULL)
    text = "1x1x1x2x3x2";
  const char *rest_of_text = text;
  long nodes = 1;
  for (int axis = 0; axis < COORDINATES; axis++)
    {
      char *end = NULL;
      const long length = strtol (rest_of_text, &end, 10);
      const char separator = axis == COORDINATES - 1 ? '\0' : 'x';
      if (end == rest_of_text || *end != separator || length < 1 || length > 255)
        die ("UNIPGAS_TOFU_SHAPE=%s: six numbers from 1 to 255 like 1x1x1x2x3x2 are needed", text);
      rest_of_text = end + 1;
      job->shape[axis] = length;
      nodes = nodes > needed ? nodes : nodes * length;
    }
  if (nodes < needed)
    die ("UNIPGAS_TOFU_SHAPE=%s has fewer nodes than are needed, %ld", text, needed);
}

/** Finds rank, size and interface, creates a queue and the board, and waits until all processes have done so. */
static inline void
job_begin (struct job *job)
{
  memset (job, 0, sizeof *job);
  static const char *const sizes[] = { "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS", NULL };
  static const char *const ranks[] = { "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID", NULL };
  job->size = number_from_environment ("UNIPGAS_SIZE", sizes, 1, 1 << 20, 0);
  job->rank = number_from_environment ("UNIPGAS_RANK", ranks, 0, job->size - 1, -1);
  /* With more sharers than CQs of an interface, some processes would have no CQ of the first interface. */
  job->sharers = number_from_environment ("UNIPGAS_TOFU_PPN", NULL, 1, 9, 1);
  read_shape (job);

  uint8_t computed[COORDINATES], asked[COORDINATES];
  coordinates_of (job, job->rank, computed);
  CHECK (utofu_query_my_coords (asked));
  if (memcmp (computed, asked, sizeof asked) != 0)
    die ("rank %ld is not at the coordinates that the shape of the mesh gives it: set UNIPGAS_TOFU_SHAPE", job->rank);

  utofu_tni_id_t *tnis = NULL;
  size_t count = 0;
  CHECK (utofu_get_onesided_tnis (&tnis, &count));
  if (count == 0)
    die ("no interface for one-sided communication");
  job->tni = tnis[0];
  free (tnis);
  struct utofu_onesided_caps *caps = NULL;
  CHECK (utofu_query_onesided_caps (job->tni, &caps));
  job->caps = caps;

  CHECK (utofu_create_vcq_with_cmp_id (job->tni, COMPONENT, 0, &job->queue));
  utofu_vcq_id_t id;
  CHECK (utofu_query_vcq_id (job->queue, &id));
  if (id != queue_of (job, job->rank))
    die ("rank %ld has a queue whose id peers cannot compute", job->rank);
  job->board = allocate_registered (job, BOARD_WORDS * sizeof (uint64_t), BOARD_STAG, &job->board_address);
  meet (job);
}

/** Waits for all processes, and releases all resources. */
static inline void
job_end (struct job *job)
{
  fflush (stdout);
  meet (job);
  free_registered (job, job->board, job->board_address);
  CHECK (utofu_free_vcq (job->queue));
}

/** Ends the job with a line from rank 0, after an error that all processes detect. */
static inline void
refuse (struct job *job, const char *format, ...)
{
  if (job->rank == 0)
    {
      va_list arguments;
      va_start (arguments, format);
      vfprintf (stderr, format, arguments);
      va_end (arguments);
      fputc ('\n', stderr);
    }
  job_end (job);
  exit (2);
}

#endif
