/*
 * deny ERRNO CALL... -- PROGRAM ARGS...: runs the program where these system calls fail with this error, as under the filters of
 * containers. For tests.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static const struct { const char *name; unsigned number; } calls[] = {
  { "userfaultfd", SYS_userfaultfd },
  { "process_vm_readv", SYS_process_vm_readv },
  { "process_vm_writev", SYS_process_vm_writev },
  { "pidfd_open", 434 },
  { "membarrier", SYS_membarrier },
  { "ptrace", SYS_ptrace },
};

static void
add (struct sock_filter *filter, unsigned short *len, unsigned short code, unsigned char jt, unsigned char jf, unsigned k)
{
  struct sock_filter step = { code, jt, jf, k };
  filter[(*len)++] = step;
}

int
main (int argc, char **argv)
{
  struct sock_filter filter[64];
  struct sock_fprog program = { 0, filter };
  int at = 2;

  if (argc < 4)
    {
      fprintf (stderr, "usage: deny ERRNO CALL... -- PROGRAM ARGS...\n");
      return 2;
    }
  add (filter, &program.len, BPF_LD | BPF_W | BPF_ABS, 0, 0, offsetof (struct seccomp_data, nr));
  for (; at < argc && strcmp (argv[at], "--") != 0; at++)
    {
      size_t nth = 0;
      while (nth < sizeof calls / sizeof calls[0] && strcmp (calls[nth].name, argv[at]) != 0)
        nth++;
      if (nth == sizeof calls / sizeof calls[0] || program.len > 60)
        {
          fprintf (stderr, "deny: %s is not known\n", argv[at]);
          return 2;
        }
      add (filter, &program.len, BPF_JMP | BPF_JEQ | BPF_K, 0, 1, calls[nth].number);
      add (filter, &program.len, BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ERRNO | (unsigned)atoi (argv[1]));
    }
  add (filter, &program.len, BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW);
  if (prctl (PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl (PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
    {
      perror ("deny: seccomp");
      return 2;
    }
  if (at + 1 >= argc)
    return 2;
  execvp (argv[at + 1], argv + at + 1);
  perror (argv[at + 1]);
  return 2;
}
