/*
 * Counts the instructions that this thread executes in a call, in user mode: it traps after each of them. What a clock on a shared machine
 * cannot say (whether a fast path has become longer), this can. x86-64 and Linux.
 */
#ifndef STEP_H
#define STEP_H

#if !defined __x86_64__ || !defined __linux__
#error "instructions are counted on x86-64 Linux only"
#endif

#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

enum
{
  WARM_UP = 200, /* until everything has been found, bound and cached */
  TRIALS = 40,
  /* Of <sys/ucontext.h>, which names them for _GNU_SOURCE alone. */
  RSP = 15,
  RIP = 16
};

static volatile long executed;

/* A function whose instructions are not counted, and where the stack was when it was called. */
static volatile uintptr_t left_out, left_out_below;

static void
one_more (int signal, siginfo_t *info, void *context)
{
  (void) signal;
  (void) info;
  /* The first member, which has two names. */
  const long long *registers = (const long long *) (void *) &((ucontext_t *) context)->uc_mcontext;
  const uintptr_t at = (uintptr_t) registers[RIP], stack = (uintptr_t) registers[RSP];
  if (left_out_below != 0 && stack <= left_out_below)
    {
      return;
    }
  left_out_below = left_out != 0 && at == left_out ? stack : 0;
  if (left_out_below == 0)
    {
      executed = executed + 1;
    }
}

static inline void
prepare_to_count (void)
{
  struct sigaction action;
  memset (&action, 0, sizeof action);
  action.sa_sigaction = one_more;
  action.sa_flags = SA_SIGINFO;
  if (sigaction (SIGTRAP, &action, NULL) != 0)
    {
      perror ("sigaction");
      exit (EXIT_FAILURE);
    }
}

/* The compiler may keep values below the stack pointer: those are stepped over. */
#define STEP_BY_STEP() \
  __asm__ volatile ("lea -128(%%rsp), %%rsp\n\tpushfq\n\torq $0x100, (%%rsp)\n\tpopfq\n\tlea 128(%%rsp), %%rsp" ::: "memory", "cc")
#define AT_FULL_SPEED() \
  __asm__ volatile ("lea -128(%%rsp), %%rsp\n\tpushfq\n\tandq $~0x100, (%%rsp)\n\tpopfq\n\tlea 128(%%rsp), %%rsp" ::: "memory", "cc")

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
