/*
 * barriers COUNT: how many operations of libfabric a rank begins in so many barriers, over the double that counts them (strict_libfabric.c). Of n ranks each
 * signals ceil(log2 n) others in a barrier, by one write for each. Gathered writes are acknowledged by one more for each 64 to a peer. An error where
 * there are more, or fewer. For tests; tests/on-strict.
 */
#include <GASPI.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#define GATHERED 64

static void
check (gaspi_return_t status, const char *what)
{
  if (status == GASPI_SUCCESS)
    return;
  fprintf (stderr, "barriers: %s: status %d\n", what, status);
  exit (1);
}

static void
barriers (long count)
{
  for (long i = 0; i < count; i++)
    check (gaspi_barrier (GASPI_GROUP_ALL, GASPI_BLOCK), "gaspi_barrier");
}

int
main (int argc, char **argv)
{
  const long count = argc > 1 ? atol (argv[1]) : 640;
  gaspi_rank_t rank, ranks;
  check (gaspi_proc_init (GASPI_BLOCK), "gaspi_proc_init");
  check (gaspi_proc_rank (&rank), "gaspi_proc_rank");
  check (gaspi_proc_num (&ranks), "gaspi_proc_num");
  long rounds = 0;
  while (1l << rounds < ranks)
    rounds++;
  void *library = dlopen ("libfabric.so.1", RTLD_NOW | RTLD_NOLOAD);
  size_t (*taken) (void) = library ? (size_t (*) (void))dlsym (library, "strict_taken") : NULL;
  if (taken == NULL)
    {
      fprintf (stderr, "barriers: the libfabric of this process counts nothing\n");
      return 1;
    }
  /* Who talks to whom for the first time connects. */
  barriers (GATHERED);
  const long before = (long)taken ();
  barriers (count);
  const long all = (long)taken () - before, signals = count * rounds;
  /* Of each peer perhaps one more, of what was written before. */
  const long most = signals + rounds * (count / GATHERED + 1);
  printf ("rank %d of %d: %ld operations in %ld barriers of %ld signals, at most %ld\n", rank, ranks, all, count, rounds, most);
  fflush (stdout);
  check (gaspi_barrier (GASPI_GROUP_ALL, GASPI_BLOCK), "gaspi_barrier");
  check (gaspi_proc_term (GASPI_BLOCK), "gaspi_proc_term");
  return all < signals || all > most;
}
