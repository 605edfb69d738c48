/* GORY holds for a whole file, so these functions have their own. */
#define GORY
#include <RCCE.h>

#include "window.h"

static struct
{
  t_vcharp place;
  size_t size;
  RCCE_FLAG ready, sent;
} window;

size_t
window_open (void)
{
  if (window.size > 0)
    return window.size;
  if (RCCE_flag_alloc (&window.ready) != RCCE_SUCCESS || RCCE_flag_alloc (&window.sent) != RCCE_SUCCESS)
    return 0;
  size_t size = RCCE_BUFF_SIZE_MAX;
  while (size > 0 && (window.place = RCCE_malloc (size)) == NULL)
    size -= RCCE_LINE_SIZE;
  window.size = size;
  return size;
}

int
window_send (char *data, size_t size, int dest)
{
  return RCCE_send (data, window.place, window.size, &window.ready, &window.sent, size, dest);
}

int
window_receive (char *data, size_t size, int source)
{
  return RCCE_recv (data, window.place, window.size, &window.ready, &window.sent, size, source);
}
