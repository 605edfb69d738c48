/*
 * UE 0 sends a message to UE 1, and UE 1 sends one back: time of one direction and bandwidth, for growing sizes.
 *
 * pingpong [ROUNDS [BYTES]]
 *
 * It uses the blocking calls iRCCE_ssend() and iRCCE_srecv(). Other UEs wait for the end.
 */
#include "exchange.h"

static void
ping_pong (const struct exchange *exchange)
{
  const ssize_t length = (ssize_t) exchange->length;
  if (exchange->me == 0)
    {
      CHECK (iRCCE_ssend (exchange->out, length, exchange->other));
      CHECK (iRCCE_srecv (exchange->in, length, exchange->other));
    }
  else
    {
      CHECK (iRCCE_srecv (exchange->in, length, exchange->other));
      CHECK (iRCCE_ssend (exchange->out, length, exchange->other));
    }
}

int
RCCE_APP (int argc, char **argv)
{
  begin (&argc, &argv);
  const struct exchange_options options = exchange_arguments (argc, argv);
  exchange_table ("ping-pong", "round trip / 2", ping_pong, 2, &options);
  CHECK (RCCE_finalize ());
  return EXIT_SUCCESS;
}
