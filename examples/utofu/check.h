/* Helpers of the examples: errors of calls, waits with a limit, time, arguments. */
#ifndef CHECK_H
#define CHECK_H

#include <utofu.h>

#include <errno.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/** Ends the process with the name of the error code if the call fails. */
#define CHECK(call) check (__FILE__, __LINE__, #call, (call))

/** Ends the process with a line on stderr. */
static inline void
die (const char *format, ...)
{
  /* One write, because several processes may print at the same time. */
  char line[512];
  va_list arguments;
  va_start (arguments, format);
  vsnprintf (line, sizeof line, format, arguments);
  va_end (arguments);
  fprintf (stderr, "%s\n", line);
  exit (EXIT_FAILURE);
}

static inline const char *
return_code_name (int code)
{
#define NAME(name) \
  case name: \
    return #name;
  switch (code)
    {
      NAME (UTOFU_SUCCESS)
      NAME (UTOFU_ERR_NOT_FOUND)
      NAME (UTOFU_ERR_NOT_COMPLETED)
      NAME (UTOFU_ERR_NOT_PROCESSED)
      NAME (UTOFU_ERR_BUSY)
      NAME (UTOFU_ERR_USED)
      NAME (UTOFU_ERR_FULL)
      NAME (UTOFU_ERR_NOT_AVAILABLE)
      NAME (UTOFU_ERR_NOT_SUPPORTED)
      NAME (UTOFU_ERR_TCQ_OTHER)
      NAME (UTOFU_ERR_TCQ_DESC)
      NAME (UTOFU_ERR_TCQ_MEMORY)
      NAME (UTOFU_ERR_TCQ_STADD)
      NAME (UTOFU_ERR_TCQ_LENGTH)
      NAME (UTOFU_ERR_MRQ_OTHER)
      NAME (UTOFU_ERR_MRQ_PEER)
      NAME (UTOFU_ERR_MRQ_LCL_MEMORY)
      NAME (UTOFU_ERR_MRQ_RMT_MEMORY)
      NAME (UTOFU_ERR_MRQ_LCL_STADD)
      NAME (UTOFU_ERR_MRQ_RMT_STADD)
      NAME (UTOFU_ERR_MRQ_LCL_LENGTH)
      NAME (UTOFU_ERR_MRQ_RMT_LENGTH)
      NAME (UTOFU_ERR_BARRIER_OTHER)
      NAME (UTOFU_ERR_BARRIER_MISMATCH)
      NAME (UTOFU_ERR_INVALID_ARG)
      NAME (UTOFU_ERR_INVALID_POINTER)
      NAME (UTOFU_ERR_INVALID_FLAGS)
      NAME (UTOFU_ERR_INVALID_COORDS)
      NAME (UTOFU_ERR_INVALID_PATH)
      NAME (UTOFU_ERR_INVALID_TNI_ID)
      NAME (UTOFU_ERR_INVALID_CQ_ID)
      NAME (UTOFU_ERR_INVALID_BG_ID)
      NAME (UTOFU_ERR_INVALID_CMP_ID)
      NAME (UTOFU_ERR_INVALID_VCQ_HDL)
      NAME (UTOFU_ERR_INVALID_VCQ_ID)
      NAME (UTOFU_ERR_INVALID_VBG_ID)
      NAME (UTOFU_ERR_INVALID_PATH_ID)
      NAME (UTOFU_ERR_INVALID_STADD)
      NAME (UTOFU_ERR_INVALID_ADDRESS)
      NAME (UTOFU_ERR_INVALID_SIZE)
      NAME (UTOFU_ERR_INVALID_STAG)
      NAME (UTOFU_ERR_INVALID_EDATA)
      NAME (UTOFU_ERR_INVALID_NUMBER)
      NAME (UTOFU_ERR_INVALID_OP)
      NAME (UTOFU_ERR_INVALID_DESC)
      NAME (UTOFU_ERR_INVALID_DATA)
      NAME (UTOFU_ERR_OUT_OF_RESOURCE)
      NAME (UTOFU_ERR_OUT_OF_MEMORY)
      NAME (UTOFU_ERR_FATAL)
    }
#undef NAME
  return "unknown code";
}

static inline void
check (const char *file, int line, const char *call, int code)
{
  if (code != UTOFU_SUCCESS)
    die ("%s:%d: %.100s: %s (%d)", file, line, call, return_code_name (code), code);
}

/** Seconds of a monotonic clock. */
static inline double
now (void)
{
  struct timespec time;
  clock_gettime (CLOCK_MONOTONIC, &time);
  return (double) time.tv_sec + 1e-9 * (double) time.tv_nsec;
}

/** The state of a wait. Initialise it with {0}. */
struct patience
{
  unsigned long polls;
  double deadline;
};

#ifndef PATIENCE
#define PATIENCE 60.0 /* seconds */
#endif

/** To be called between polls. Yields the processor after a while, and ends the process after PATIENCE. */
static inline void
rest (struct patience *patience, const char *awaited)
{
  patience->polls++;
  if (patience->polls % 128 != 0)
    return;
  if (patience->polls < 1 << 17)
    sched_yield ();
  else
    {
      const struct timespec pause = { 0, 200000 };
      nanosleep (&pause, NULL);
    }
  const double time = now ();
  if (patience->deadline == 0.0)
    patience->deadline = time + PATIENCE;
  else if (time > patience->deadline)
    die ("waited for %.0f s: %s", PATIENCE, awaited);
}

/** Loads a word that peers write (acquire): earlier writes of the peer are visible too. */
static inline uint64_t
load_word (const uint64_t *word)
{
  return __atomic_load_n (word, __ATOMIC_ACQUIRE);
}

/** Reads an integer between min and max from an argument. Returns 0 if it is not valid. */
static inline int
parse_number (const char *argument, long min, long max, long *number)
{
  char *end = NULL;
  errno = 0;
  const long value = strtol (argument, &end, 10);
  if (errno != 0 || end == argument || *end != '\0' || value < min || value > max)
    return 0;
  *number = value;
  return 1;
}

#endif
