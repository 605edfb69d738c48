/* Helpers of the benchmarks for two UEs: messages of growing sizes, checked rounds, timed rounds, a table. */
#ifndef EXCHANGE_H
#define EXCHANGE_H

#include "check.h"

/** The messages of two UEs. */
struct exchange
{
  int me, other;
  char *out, *in;
  size_t length;
};

/** One round: both UEs send `out` and receive `in`, in any order. */
typedef void exchange_round (const struct exchange *exchange);

struct exchange_options
{
  long rounds;
  long max_length;
};

/** Reads [ROUNDS [BYTES]]; BYTES: size of the longest messages. */
static inline struct exchange_options
exchange_arguments (int argc, char **argv)
{
  struct exchange_options options = { 100, 1 << 18 };
  if (argc > 3 || (argc > 1 && !parse_number (argv[1], 1, 10000000, &options.rounds))
      || (argc > 2 && !parse_number (argv[2], 1, 1 << 30, &options.max_length)))
    refuse ("usage: %s [ROUNDS [BYTES]]", argv[0]);
  if (RCCE_num_ues () < 2)
    refuse ("%s: needs two UEs", argv[0]);
  return options;
}

/* Each round has different messages, so the check detects bytes of an earlier round. */
static inline void
checked_exchange (const struct exchange *exchange, exchange_round *round, long number)
{
  write_message (exchange->out, exchange->length, exchange->me, number);
  round (exchange);
  check_message (exchange->in, exchange->length, exchange->other, number);
}

/** UEs 0 and 1 exchange messages; UE 0 prints a table. `messages`: number of sequential messages in a round. */
static inline void
exchange_table (const char *title, const char *time_name, exchange_round *round, int messages,
                const struct exchange_options *options)
{
  const int me = RCCE_ue ();
  CHECK (RCCE_barrier (&RCCE_COMM_WORLD));
  if (me < 2)
    {
      const size_t max_length = (size_t) options->max_length;
      struct exchange exchange = { me, 1 - me, allocate (max_length), allocate (max_length), 0 };
      if (me == 0)
        printf ("%s, %ld rounds\n%10s %16s %12s\n", title, options->rounds, "bytes", time_name, "MB/s");
      for (exchange.length = 1; exchange.length <= max_length; exchange.length *= 2)
        {
          for (long number = 0; number < 3; number++)
            checked_exchange (&exchange, round, number);
          const double start = RCCE_wtime ();
          for (long i = 0; i < options->rounds; i++)
            round (&exchange);
          const double seconds = (RCCE_wtime () - start) / (double) options->rounds / messages;
          checked_exchange (&exchange, round, 3);
          if (me == 0)
            printf ("%10zu %13.2f us %12.2f\n", exchange.length, 1e6 * seconds, 1e-6 * (double) exchange.length / seconds);
        }
      free (exchange.out);
      free (exchange.in);
    }
  CHECK (RCCE_barrier (&RCCE_COMM_WORLD));
}

#endif
