/*
 * A program that includes this first is not dumpable: with UNDUMPABLE_BEFORE from its beginning, else from when it has started its
 * interface. For tests.
 */
#define _GNU_SOURCE
#include <sys/prctl.h>

static inline int
undumpable (int result)
{
  prctl (PR_SET_DUMPABLE, 0, 0, 0, 0);
  return result;
}

#ifdef UNDUMPABLE_BEFORE
__attribute__ ((constructor)) static void
at_the_beginning (void)
{
  undumpable (0);
}
#elif defined OF_gaspi
#include <GASPI.h>
#define gaspi_proc_init(timeout) undumpable (gaspi_proc_init (timeout))
#elif defined OF_utofu
#include <utofu.h>
#define utofu_query_my_coords(coords) undumpable (utofu_query_my_coords (coords))
#elif defined OF_ircce
#include <RCCE.h>
#define RCCE_init(argc, argv) undumpable (RCCE_init (argc, argv))
#elif defined OF_libfabric
#include <rdma/fi_domain.h>
#define fi_domain(fabric, info, domain, context) undumpable (fi_domain (fabric, info, domain, context))
#endif
