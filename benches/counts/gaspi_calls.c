/* gaspi_calls WHAT COUNT: calls that are counted (tests/run-tofu-calls), beside those that begin and end it. */
#include <GASPI.h>
#include <stdlib.h>
#include <string.h>

#define OK(call)                  \
  do                              \
    if ((call) != GASPI_SUCCESS)  \
      return 1;                   \
  while (0)

int
main (int argc, char **argv)
{
  if (argc != 3)
    return 2;
  const char *what = argv[1];
  const long count = atol (argv[2]);
  gaspi_rank_t rank, num;
  gaspi_pointer_t at;
  OK (gaspi_proc_init (GASPI_BLOCK));
  OK (gaspi_proc_rank (&rank));
  OK (gaspi_proc_num (&num));
  OK (gaspi_segment_create (0, 1 << 20, GASPI_GROUP_ALL, GASPI_BLOCK, GASPI_MEM_INITIALIZED));
  OK (gaspi_segment_ptr (0, &at));
  const gaspi_rank_t next = (rank + 1) % num;
  for (long i = 0; i < count; i++)
    {
      const unsigned long whole = (unsigned long) num * (num - 1) / 2 + num * i;
      if (strcmp (what, "barrier") == 0)
        OK (gaspi_barrier (GASPI_GROUP_ALL, GASPI_BLOCK));
      else if (strcmp (what, "sum") == 0)
        {
          unsigned long own = rank + i, sum = 0;
          OK (gaspi_allreduce (&own, &sum, 1, GASPI_OP_SUM, GASPI_TYPE_ULONG, GASPI_GROUP_ALL, GASPI_BLOCK));
          if (sum != whole)
            return 3;
        }
      else if (strcmp (what, "doubles") == 0)
        {
          double own = rank + i, sum = 0;
          OK (gaspi_allreduce (&own, &sum, 1, GASPI_OP_SUM, GASPI_TYPE_DOUBLE, GASPI_GROUP_ALL, GASPI_BLOCK));
          if (sum != whole)
            return 3;
        }
      else if (strcmp (what, "least") == 0)
        {
          double own = 0.5 * rank - i, least = 0;
          OK (gaspi_allreduce (&own, &least, 1, GASPI_OP_MIN, GASPI_TYPE_DOUBLE, GASPI_GROUP_ALL, GASPI_BLOCK));
          if (least != -i)
            return 3;
        }
      else if (strcmp (what, "put8") == 0)
        OK (gaspi_write (0, 0, next, 0, 64, 8, 0, GASPI_BLOCK));
      else if (strcmp (what, "put4096") == 0)
        OK (gaspi_write (0, 0, next, 0, 65536, 4096, 0, GASPI_BLOCK));
      else if (strcmp (what, "notify") == 0)
        OK (gaspi_write_notify (0, 0, next, 0, 64, 8, 0, 1, 0, GASPI_BLOCK));
      else if (strcmp (what, "get") == 0)
        OK (gaspi_read (0, 0, next, 0, 64, 8, 0, GASPI_BLOCK));
      else if (strcmp (what, "add") == 0)
        {
          gaspi_atomic_value_t old;
          OK (gaspi_atomic_fetch_add (0, 512, next, 1, &old, GASPI_BLOCK));
        }
      else
        return 2;
      if (strncmp (what, "put", 3) == 0 || strcmp (what, "notify") == 0 || strcmp (what, "get") == 0)
        OK (gaspi_wait (0, GASPI_BLOCK));
    }
  OK (gaspi_barrier (GASPI_GROUP_ALL, GASPI_BLOCK));
  return gaspi_proc_term (GASPI_BLOCK) != GASPI_SUCCESS;
}
