/* Helpers of the examples: errors of calls, requests to a full queue, the end of a job, arguments. */
#ifndef SUCCESS_OR_DIE_H
#define SUCCESS_OR_DIE_H

#include <GASPI.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

/** Ends the process with the text for the code, unless the call has succeeded. */
#define SUCCESS_OR_DIE(call) success_or_die (__FILE__, __LINE__, #call, (call))

/** Posts a request. While the queue is full, waits for its requests. */
#define POST(queue, call) \
  do \
    { \
      gaspi_return_t posted; \
      while ((posted = (call)) == GASPI_QUEUE_FULL) \
        SUCCESS_OR_DIE (gaspi_wait ((queue), GASPI_BLOCK)); \
      success_or_die (__FILE__, __LINE__, #call, posted); \
    } \
  while (0)

static inline void
success_or_die (const char *file, int line, const char *call, gaspi_return_t code)
{
  if (code == GASPI_SUCCESS)
    return;
  gaspi_string_t text = NULL;
  if (gaspi_print_error (code, &text) != GASPI_SUCCESS || text == NULL)
    fprintf (stderr, "%s:%d: %s: error %d\n", file, line, call, (int) code);
  else
    fprintf (stderr, "%s:%d: %s: %s\n", file, line, call, text);
  free (text);
  exit (EXIT_FAILURE);
}

/**
 * Leaves the job together with all others, after printing. A launcher may end the other processes as soon as one has failed.
 */
static inline void
leave (void)
{
  fflush (stdout);
  SUCCESS_OR_DIE (gaspi_barrier (GASPI_GROUP_ALL, GASPI_BLOCK));
  SUCCESS_OR_DIE (gaspi_proc_term (GASPI_BLOCK));
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
