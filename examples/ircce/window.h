/* Messages through a window in the sender's MPB, as GORY programs send them. */
#ifndef WINDOW_H
#define WINDOW_H

#include <stddef.h>

/** Allocates the window, as large as there is room for, and its flags; all UEs call it together. Gives its size in bytes, 0 without room. */
size_t window_open (void);
/** Ends when UE dest has received it. Both return an RCCE code. */
int window_send (char *data, size_t size, int dest);
int window_receive (char *data, size_t size, int source);

#endif
