/*
 * The ping-pong and the ping-ping with wildcards for source and length in the receives, for growing sizes.
 *
 * wildcards [ROUNDS [BYTES]]
 *
 * After each receive, the program queries source and length and checks them.
 */
#include "exchange.h"

static void
check_source_and_length (const struct exchange *exchange, int source, int length)
{
  if (source != exchange->other || (size_t) length != exchange->length)
    die ("UE %d: %d bytes from UE %d have come, %zu bytes from UE %d were sent", exchange->me, length, source, exchange->length,
         exchange->other);
}

static void
receive_anything (const struct exchange *exchange)
{
  CHECK (iRCCE_srecv (exchange->in, iRCCE_ANY_LENGTH, iRCCE_ANY_SOURCE));
  check_source_and_length (exchange, iRCCE_get_source (NULL), iRCCE_get_length ());
}

static void
ping_pong (const struct exchange *exchange)
{
  if (exchange->me == 1)
    receive_anything (exchange);
  CHECK (iRCCE_ssend (exchange->out, (ssize_t) exchange->length, exchange->other));
  if (exchange->me == 0)
    receive_anything (exchange);
}

static void
ping_ping (const struct exchange *exchange)
{
  iRCCE_SEND_REQUEST send;
  iRCCE_RECV_REQUEST receive;
  POST (iRCCE_isend (exchange->out, (ssize_t) exchange->length, exchange->other, &send));
  POST (iRCCE_irecv (exchange->in, iRCCE_ANY_LENGTH, iRCCE_ANY_SOURCE, &receive));
  CHECK (iRCCE_isend_wait (&send));
  CHECK (iRCCE_irecv_wait (&receive));
  check_source_and_length (exchange, iRCCE_get_source (&receive), iRCCE_get_size (NULL, &receive));
}

int
RCCE_APP (int argc, char **argv)
{
  begin (&argc, &argv);
  const struct exchange_options options = exchange_arguments (argc, argv);
  exchange_table ("ping-pong with wildcards", "round trip / 2", ping_pong, 2, &options);
  exchange_table ("ping-ping with wildcards", "time", ping_ping, 1, &options);
  CHECK (RCCE_finalize ());
  return EXIT_SUCCESS;
}
