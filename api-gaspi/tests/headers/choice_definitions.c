/* Stand-ins for the functions with two signatures. Each returns a different number. */
#define GASPI_NO_OVERLOADS
#include <GASPI.h>

gaspi_return_t
gaspi_state_vec_get (gaspi_state_vector_t state_vector)
{
  (void) state_vector;
  return (gaspi_return_t) 1;
}

gaspi_return_t
gaspi_state_vec_get_17 (gaspi_state_vector_t *state_vector)
{
  (void) state_vector;
  return (gaspi_return_t) 2;
}

gaspi_return_t
gaspi_time_ticks (gaspi_cycles_t *ticks)
{
  (void) ticks;
  return (gaspi_return_t) 3;
}

gaspi_return_t
gaspi_time_resolution (gaspi_time_t *resolution)
{
  (void) resolution;
  return (gaspi_return_t) 4;
}

gaspi_return_t
gaspi_allreduce_user (gaspi_const_pointer_t buffer_send, gaspi_pointer_t buffer_receive, gaspi_number_t num,
                      gaspi_size_t size_element, gaspi_reduce_operation_t reduce_operation,
                      gaspi_reduce_state_t reduce_state, gaspi_group_t group, gaspi_timeout_t timeout)
{
  (void) buffer_send;
  (void) buffer_receive;
  (void) num;
  (void) size_element;
  (void) reduce_operation;
  (void) reduce_state;
  (void) group;
  (void) timeout;
  return (gaspi_return_t) 5;
}

gaspi_return_t
gaspi_allreduce_user_17 (gaspi_const_pointer_t buffer_send, gaspi_pointer_t buffer_receive, gaspi_number_t num,
                         gaspi_size_t size_element, gaspi_reduce_operation_17_t reduce_operation,
                         gaspi_reduce_state_t reduce_state, gaspi_group_t group, gaspi_timeout_t timeout)
{
  (void) buffer_send;
  (void) buffer_receive;
  (void) num;
  (void) size_element;
  (void) reduce_operation;
  (void) reduce_state;
  (void) group;
  (void) timeout;
  return (gaspi_return_t) 6;
}

gaspi_return_t
gaspi_segment_ptr (gaspi_segment_id_t segment_id, gaspi_pointer_t *pointer)
{
  static int memory;
  (void) segment_id;
  *pointer = &memory;
  return (gaspi_return_t) 7;
}
