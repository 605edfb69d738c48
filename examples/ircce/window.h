/* Messages through a window in the sender's MPB, as GORY programs send them. */
#ifndef WINDOW_H
#define WINDOW_H

#include <stddef.h>

/** Allocates the largest possible window and its flags. All UEs call it together. Returns its size in bytes, 0 without room. */
size_t window_open (void);
/** Returns after UE dest has received the message. Both functions return an RCCE code. */
int window_send (char *data, size_t size, int dest);
int window_receive (char *data, size_t size, int source);

#endif
