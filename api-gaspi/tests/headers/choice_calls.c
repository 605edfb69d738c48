/* Calls all functions with two signatures by both signatures, and prints the calls that reached the wrong function. */
#include <GASPI.h>
#include <stdio.h>

#define EXPECT(number, call) \
  do \
    { \
      const int got = (int) (call); \
      if (got != (number)) \
        { \
          printf ("%s reached %d, not %d\n", #call, got, (number)); \
          failed = 1; \
        } \
    } \
  while (0)

static gaspi_return_t
with_count (gaspi_pointer_t one, gaspi_pointer_t two, gaspi_pointer_t result, gaspi_reduce_state_t state,
            gaspi_number_t num, gaspi_size_t element_size, gaspi_timeout_t timeout)
{
  (void) one;
  (void) two;
  (void) result;
  (void) state;
  (void) num;
  (void) element_size;
  (void) timeout;
  return GASPI_SUCCESS;
}

static gaspi_return_t
without_count (gaspi_const_pointer_t one, gaspi_const_pointer_t two, gaspi_pointer_t result, gaspi_reduce_state_t state,
               gaspi_timeout_t timeout)
{
  (void) one;
  (void) two;
  (void) result;
  (void) state;
  (void) timeout;
  return GASPI_SUCCESS;
}

int
main (void)
{
  int failed = 0;

  gaspi_state_t states[2];
  gaspi_state_vector_t vector = states;
  EXPECT (1, gaspi_state_vec_get (states));
  EXPECT (1, gaspi_state_vec_get (vector));
  EXPECT (1, gaspi_state_vec_get (&states[0]));
  EXPECT (1, gaspi_state_vec_get (NULL));
  EXPECT (2, gaspi_state_vec_get (&vector));

  gaspi_cycles_t ticks = 0;
  gaspi_time_t resolution = 0;
  EXPECT (3, gaspi_time_ticks (&ticks));
  EXPECT (3, gaspi_time_ticks (NULL));
  EXPECT (4, gaspi_time_ticks (&resolution));

  const double send = 0;
  double receive = 0;
  gaspi_reduce_operation_t stored = with_count;
  EXPECT (5, gaspi_allreduce_user (&send, &receive, 1, 8, with_count, NULL, GASPI_GROUP_ALL, GASPI_BLOCK));
  EXPECT (5, gaspi_allreduce_user (&send, &receive, 1, 8, &with_count, NULL, GASPI_GROUP_ALL, GASPI_BLOCK));
  EXPECT (5, gaspi_allreduce_user (&send, &receive, 1, 8, stored, NULL, GASPI_GROUP_ALL, GASPI_BLOCK));
  EXPECT (6, gaspi_allreduce_user (&send, &receive, 1, 8, without_count, NULL, GASPI_GROUP_ALL, GASPI_BLOCK));
  EXPECT (6, gaspi_allreduce_user (&send, &receive, 1, 8, &without_count, NULL, GASPI_GROUP_ALL, GASPI_BLOCK));

  gaspi_pointer_t any = NULL;
  int *typed = NULL;
  EXPECT (7, gaspi_segment_ptr (0, &any));
  EXPECT (7, gaspi_segment_ptr (0, &typed));
  EXPECT (1, any == (void *) typed && any != NULL);

  /* The plain function remains a function. */
  gaspi_return_t (*address) (gaspi_state_vector_t) = gaspi_state_vec_get;
  EXPECT (1, address (states));
  return failed;
}
