/* The processor traps after each instruction, and the thread counts its own signals. */
#ifndef STEP_X86_64_H
#define STEP_X86_64_H

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

#endif
