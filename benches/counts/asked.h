/*
 * What a call asks of a double of an RDMA device (backends/doubles/verbs), which counts: work requests, and calls that post them. The least of several times: the
 * progress thread may ask for something, too.
 */
#ifndef ASKED_H
#define ASKED_H

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum
{
  TIMES = 50
};

typedef uint64_t count_fn (const char *name);

static inline uint64_t
asked_for (const char *name)
{
  static count_fn *count;
  if (count == NULL)
    {
      void *library = dlopen ("libibverbs.so.1", RTLD_NOW | RTLD_NOLOAD);
      void *found = library == NULL ? NULL : dlsym (library, "verbs_double_count");
      if (found == NULL)
        {
          fprintf (stderr, "the device is not of software\n");
          exit (1);
        }
      *(void **) (void *) &count = found;
    }
  return count (name);
}

static inline uint64_t
requests (void)
{
  return asked_for ("wr.write") + asked_for ("wr.write_imm") + asked_for ("wr.send") + asked_for ("wr.send_imm") + asked_for ("wr.read");
}

/* What `call` asks for; then `rest` is done. */
#define ASKED(name, call, rest) \
  do \
    { \
      uint64_t requests_of_it = 0, least = UINT64_MAX; \
      for (int nth = 0; nth < TIMES; nth++) \
        { \
          const uint64_t before = requests (), rung = asked_for ("doorbells"); \
          call; \
          const uint64_t after = asked_for ("doorbells") - rung, made = requests () - before; \
          if (after < least || (after == least && made < requests_of_it)) \
            { \
              least = after; \
              requests_of_it = made; \
            } \
          rest; \
        } \
      printf ("%s %lu %lu\n", (name), (unsigned long) requests_of_it, (unsigned long) least); \
      fflush (stdout); \
    } \
  while (0)

#endif
