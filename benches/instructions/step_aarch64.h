/*
 * A program cannot have itself trapped here: a child traces it, which steps from one breakpoint to another one. Instructions between an exclusive load and
 * its store cannot be stepped through, as each stop takes the reservation away: this needs a processor with FEAT_LSE, for which the compilers' atomics
 * have single instructions.
 */
#ifndef STEP_AARCH64_H
#define STEP_AARCH64_H

#include <elf.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

enum
{
  WARM_UP = 200, /* until everything has been found, bound and cached */
  TRIALS = 10,
  /* `brk` with this number; another one ends. */
  BEGIN = 0x751,
  LSE = 1 << 8, /* HWCAP_ATOMICS */
  STEPPED = 2, /* TRAP_TRACE, which <signal.h> names for _XOPEN_SOURCE alone */
  PC = 32
};

/* What both see. */
struct count
{
  volatile long executed;
  volatile int traced;
};

static struct count *count;
#define executed (count->executed)

#define BRK(number) (0xd4200000u | (uint32_t) (number) << 5)
#define STEP_BY_STEP() __asm__ volatile ("brk #0x751" ::: "memory")
#define AT_FULL_SPEED() __asm__ volatile ("brk #0x752" ::: "memory")

/* At one of the two breakpoints, which is passed: whether it is the first one. */
static inline int
begins (pid_t program)
{
  unsigned long long registers[34];
  struct iovec all = { registers, sizeof registers };
  ptrace (PTRACE_GETREGSET, program, (void *) (uintptr_t) NT_PRSTATUS, &all);
  const long at = ptrace (PTRACE_PEEKTEXT, program, (void *) (uintptr_t) registers[PC], NULL);
  registers[PC] += 4;
  ptrace (PTRACE_SETREGSET, program, (void *) (uintptr_t) NT_PRSTATUS, &all);
  return (uint32_t) at == BRK (BEGIN);
}

static inline void
trace (pid_t program)
{
  int status, stepping = 0;
  if (ptrace (PTRACE_SEIZE, program, NULL, NULL) != 0)
    {
      perror ("ptrace");
      _exit (EXIT_FAILURE);
    }
  count->traced = 1;
  while (waitpid (program, &status, __WALL) == program && WIFSTOPPED (status))
    {
      long signal = WSTOPSIG (status);
      siginfo_t why;
      if (signal == SIGTRAP && ptrace (PTRACE_GETSIGINFO, program, NULL, &why) == 0)
        {
          signal = 0;
          if (why.si_code == STEPPED)
            {
              executed = executed + 1;
            }
          else
            {
              stepping = begins (program);
            }
        }
      ptrace (stepping ? PTRACE_SINGLESTEP : PTRACE_CONT, program, NULL, (void *) (uintptr_t) signal);
    }
  _exit (EXIT_SUCCESS);
}

static inline void
prepare_to_count (void)
{
  if ((getauxval (AT_HWCAP) & LSE) == 0)
    {
      fprintf (stderr, "instructions: a processor with FEAT_LSE is needed\n");
      exit (EXIT_FAILURE);
    }
  count = mmap (NULL, sizeof *count, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (count == MAP_FAILED)
    {
      perror ("mmap");
      exit (EXIT_FAILURE);
    }
  prctl (PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
  const pid_t program = getpid (), tracer = fork ();
  if (tracer == 0)
    {
      trace (program);
    }
  int status;
  while (!count->traced)
    {
      if (tracer < 0 || waitpid (tracer, &status, WNOHANG) != 0)
        {
          fprintf (stderr, "instructions: cannot be traced\n");
          exit (EXIT_FAILURE);
        }
    }
}

#endif
