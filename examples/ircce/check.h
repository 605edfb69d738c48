/* Helpers of the examples: errors of calls, arguments, and messages with known bytes. */
#ifndef CHECK_H
#define CHECK_H

#include <RCCE.h>
#include <iRCCE.h>

#include <errno.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/** Ends the program with the error's text if the call fails. */
#define CHECK(call) check (__FILE__, __LINE__, #call, (call), 0)
/** The same for a call that begins a request. The request may still be pending. */
#define POST(call) check (__FILE__, __LINE__, #call, (call), 1)

/** Ends the process, and thereby the job, with a line on stderr. */
static inline void
die (const char *format, ...)
{
  /* One write, because several processes may print at the same time. */
  char line[512];
  va_list arguments;
  va_start (arguments, format);
  vsnprintf (line, sizeof line, format, arguments);
  va_end (arguments);
  fflush (stdout);
  fprintf (stderr, "%s\n", line);
  exit (EXIT_FAILURE);
}

static inline void
check (const char *file, int line, const char *call, int code, int may_be_open)
{
  if (code == iRCCE_SUCCESS || (may_be_open && (code == iRCCE_PENDING || code == iRCCE_RESERVED)))
    return;
  char text[RCCE_MAX_ERROR_STRING + 1] = "";
  int length = 0;
  if (code < RCCE_ERROR_BASE || RCCE_error_string (code, text, &length) != RCCE_SUCCESS)
    text[0] = '\0';
  die ("%s:%d: UE %d: %.100s: %s (%d)", file, line, RCCE_ue (), call, text, code);
}

static inline void
begin (int *argc, char ***argv)
{
  CHECK (RCCE_init (argc, argv));
  CHECK (iRCCE_init ());
}

/** Ends the program with a line from UE 0, after an error that all UEs detect. */
static inline void
refuse (const char *format, ...)
{
  if (RCCE_ue () == 0)
    {
      va_list arguments;
      va_start (arguments, format);
      vfprintf (stderr, format, arguments);
      va_end (arguments);
      fputc ('\n', stderr);
    }
  CHECK (RCCE_finalize ());
  exit (2);
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

/** Allocates at least one byte. */
static inline void *
allocate (size_t bytes)
{
  void *memory = calloc (bytes > 0 ? bytes : 1, 1);
  if (memory == NULL)
    die ("no memory for %zu bytes", bytes);
  return memory;
}

/** The next pseudo-random number. */
static inline uint64_t
next_random (uint64_t *state)
{
  uint64_t mixed = *state += UINT64_C (0x9e3779b97f4a7c15);
  mixed = (mixed ^ mixed >> 30) * UINT64_C (0xbf58476d1ce4e5b9);
  mixed = (mixed ^ mixed >> 27) * UINT64_C (0x94d049bb133111eb);
  return mixed ^ mixed >> 31;
}

/** Fills a message with bytes that depend on sender and number. */
static inline void
write_message (char *bytes, size_t length, int sender, long number)
{
  uint64_t state = (uint64_t) number << 8 | (uint64_t) sender, word = 0;
  for (size_t i = 0; i < length; i++)
    {
      if (i % 8 == 0)
        word = next_random (&state);
      bytes[i] = (char) (word >> i % 8 * 8);
    }
}

/** Ends the program if the message has other bytes. */
static inline void
check_message (const char *bytes, size_t length, int sender, long number)
{
  uint64_t state = (uint64_t) number << 8 | (uint64_t) sender, word = 0;
  for (size_t i = 0; i < length; i++)
    {
      if (i % 8 == 0)
        word = next_random (&state);
      if (bytes[i] != (char) (word >> i % 8 * 8))
        die ("UE %d: byte %zu of %zu in message %ld from UE %d is wrong", RCCE_ue (), i, length, number, sender);
    }
}

#endif
