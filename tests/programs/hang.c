/* hang WHAT: programs that hang, for run-hangs. */
#include <GASPI.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define CHECK(call) do { if ((call) != GASPI_SUCCESS) return 1; } while (0)

static int is_stopped (long pid)
{
  char name[64], state = 0;
  snprintf (name, sizeof name, "/proc/%ld/stat", pid);
  FILE *file = fopen (name, "r");
  if (file && fscanf (file, "%*d (%*[^)]) %c", &state) != 1)
    state = 0;
  if (file)
    fclose (file);
  return state == 'T';
}

int main (int argc, char **argv)
{
  const char *what = argc > 1 ? argv[1] : "";
  gaspi_rank_t me, size;
  CHECK (gaspi_proc_init (GASPI_BLOCK));
  CHECK (gaspi_proc_rank (&me));
  CHECK (gaspi_proc_num (&size));
  CHECK (gaspi_segment_create (0, 1 << 20, GASPI_GROUP_ALL, GASPI_BLOCK, GASPI_MEM_INITIALIZED));
  if (!strcmp (what, "barrier"))
    {
      /* One of them never comes. */
      if (me == 1)
        for (;;)
          pause ();
      CHECK (gaspi_barrier (GASPI_GROUP_ALL, GASPI_BLOCK));
    }
  else if (!strcmp (what, "reduce"))
    {
      int one = 1, sum;
      if (me == size - 1)
        for (;;)
          ;
      CHECK (gaspi_allreduce (&one, &sum, 1, GASPI_OP_SUM, GASPI_TYPE_INT, GASPI_GROUP_ALL, GASPI_BLOCK));
    }
  else if (!strcmp (what, "notify"))
    {
      gaspi_notification_id_t first;
      CHECK (gaspi_notify_waitsome (0, 7, 1, &first, GASPI_BLOCK));
    }
  else if (!strcmp (what, "test"))
    {
      gaspi_notification_id_t first;
      while (gaspi_notify_waitsome (0, 7, 1, &first, GASPI_TEST) == GASPI_TIMEOUT)
        ;
    }
  else if (!strcmp (what, "write"))
    {
      /* To one that answers no more, over a network. */
      gaspi_notification_id_t first;
      gaspi_pointer_t memory;
      CHECK (gaspi_segment_ptr (0, &memory));
      *(long *) memory = getpid ();
      CHECK (gaspi_write (0, 0, 1 - me, 0, 64, 64, 3, GASPI_BLOCK));
      CHECK (gaspi_wait (3, GASPI_BLOCK));
      CHECK (gaspi_barrier (GASPI_GROUP_ALL, GASPI_BLOCK));
      if (me == 1)
        raise (SIGSTOP);
      while (!is_stopped (((long *) memory)[8]))
        sleep (1);
      CHECK (gaspi_write (0, 0, 1, 0, 0, 1 << 20, 3, GASPI_BLOCK));
      CHECK (gaspi_notify_waitsome (0, 7, 1, &first, GASPI_BLOCK));
    }
  else
    {
      gaspi_rank_t from;
      char bytes[8];
      if (me == 0)
        CHECK (gaspi_passive_receive (0, 0, &from, sizeof bytes, GASPI_BLOCK));
      else
        CHECK (gaspi_barrier (GASPI_GROUP_ALL, GASPI_BLOCK));
    }
  return 0;
}
