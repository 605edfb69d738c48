/*
 * Counts the instructions that this thread executes in a call, in user mode: it stops after each of them. What a clock on a shared machine
 * cannot say (whether a fast path has become longer), this can. x86-64 and aarch64, Linux.
 */
#ifndef STEP_H
#define STEP_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#if defined __x86_64__ && defined __linux__
#include "step_x86_64.h"
#elif defined __aarch64__ && defined __linux__
#include "step_aarch64.h"
#else
#error "instructions are counted on x86-64 and aarch64 Linux only"
#endif

/* The fewest instructions of one `call`, each of which `after` makes room for again; into `least`. */
#define COUNT(least, call, after) \
  do \
    { \
      long nothing = 0; \
      (least) = 0; \
      for (int trial = 0; trial < WARM_UP + TRIALS; trial++) \
        { \
          if (trial >= WARM_UP) \
            { \
              executed = 0; \
              STEP_BY_STEP (); \
              AT_FULL_SPEED (); \
              nothing = executed; \
              executed = 0; \
              STEP_BY_STEP (); \
              call; \
              AT_FULL_SPEED (); \
              const long took = executed - nothing; \
              (least) = (least) == 0 || took < (least) ? took : (least); \
            } \
          else \
            { \
              call; \
            } \
          after; \
        } \
    } \
  while (0)

/* One line of the result. */
static inline void
report (const char *what, long instructions)
{
  printf ("%s %ld\n", what, instructions);
  fflush (stdout);
}

#endif
