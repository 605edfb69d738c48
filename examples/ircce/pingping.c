/*
 * UEs 0 and 1 send to each other at the same time: time of a message with simultaneous traffic in the other direction, for
 * growing sizes.
 *
 * pingping [ROUNDS [BYTES]]
 *
 * Both UEs begin with the send. This is possible because iRCCE_isend() does not wait. Other UEs wait for the end.
 */
#include "exchange.h"

static void
ping_ping (const struct exchange *exchange)
{
  const ssize_t length = (ssize_t) exchange->length;
  iRCCE_SEND_REQUEST send;
  iRCCE_RECV_REQUEST receive;
  POST (iRCCE_isend (exchange->out, length, exchange->other, &send));
  POST (iRCCE_irecv (exchange->in, length, exchange->other, &receive));
  CHECK (iRCCE_isend_wait (&send));
  CHECK (iRCCE_irecv_wait (&receive));
}

int
RCCE_APP (int argc, char **argv)
{
  begin (&argc, &argv);
  const struct exchange_options options = exchange_arguments (argc, argv);
  exchange_table ("ping-ping", "time", ping_ping, 1, &options);
  CHECK (RCCE_finalize ());
  return EXIT_SUCCESS;
}
