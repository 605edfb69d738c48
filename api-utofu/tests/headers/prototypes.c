/*
 * Takes each function through a pointer of its specified type, in basic types. So a parameter that is missing, in the wrong place or
 * of another width does not compile, in C and C++. The linked program shows that the library has all functions.
 */
#include <utofu.h>

#include <stdio.h>

/* One member for each function: a struct, since a pointer to a function does not fit into an array of void *. */
struct functions
{
  int (*get_onesided_tnis) (uint16_t **, size_t *);
  int (*get_barrier_tnis) (uint16_t **, size_t *);
  int (*query_onesided_caps) (uint16_t, struct utofu_onesided_caps **);
  int (*query_barrier_caps) (uint16_t, struct utofu_barrier_caps **);
  int (*create_vcq) (uint16_t, unsigned long int, uintptr_t *);
  int (*create_vcq_with_cmp_id) (uint16_t, uint16_t, unsigned long int, uintptr_t *);
  int (*free_vcq) (uintptr_t);
  int (*query_vcq_id) (uintptr_t, uint64_t *);
  int (*construct_vcq_id) (uint8_t *, uint16_t, uint16_t, uint16_t, uint64_t *);
  int (*set_vcq_id_path) (uint64_t *, uint8_t *);
  int (*query_vcq_info) (uint64_t, uint8_t *, uint16_t *, uint16_t *, uint16_t *);
  int (*alloc_vbg) (uint16_t, size_t, unsigned long int, uint64_t *);
  int (*free_vbg) (uint64_t *, size_t);
  int (*set_vbg) (struct utofu_vbg_setting *, size_t);
  int (*query_vbg_info) (uint64_t, uint8_t *, uint16_t *, uint16_t *, uint16_t *);
  int (*get_path_id) (uint64_t, uint8_t *, uint8_t *);
  int (*get_path_coords) (uint64_t, uint8_t, uint8_t *);
  int (*reg_mem) (uintptr_t, void *, size_t, unsigned long int, uint64_t *);
  int (*reg_mem_with_stag) (uintptr_t, void *, size_t, unsigned int, unsigned long int, uint64_t *);
  int (*query_stadd) (uint64_t, unsigned int, uint64_t *);
  int (*dereg_mem) (uintptr_t, uint64_t, unsigned long int);
  int (*put) (uintptr_t, uint64_t, uint64_t, uint64_t, size_t, uint64_t, unsigned long int, void *);
  int (*put_gap) (uintptr_t, uint64_t, uint64_t, uint64_t, size_t, uint64_t, unsigned long int, size_t, size_t, void *);
  int (*put_stride) (uintptr_t, uint64_t, uint64_t, uint64_t, size_t, size_t, size_t, uint64_t, unsigned long int,
                     void *);
  int (*put_stride_gap) (uintptr_t, uint64_t, uint64_t, uint64_t, size_t, size_t, size_t, uint64_t, unsigned long int,
                         size_t, size_t, void *);
  int (*put_piggyback) (uintptr_t, uint64_t, void *, uint64_t, size_t, uint64_t, unsigned long int, void *);
  int (*put_piggyback8) (uintptr_t, uint64_t, uint64_t, uint64_t, size_t, uint64_t, unsigned long int, void *);
  int (*get) (uintptr_t, uint64_t, uint64_t, uint64_t, size_t, uint64_t, unsigned long int, void *);
  int (*get_gap) (uintptr_t, uint64_t, uint64_t, uint64_t, size_t, uint64_t, unsigned long int, size_t, size_t, void *);
  int (*get_stride) (uintptr_t, uint64_t, uint64_t, uint64_t, size_t, size_t, size_t, uint64_t, unsigned long int,
                     void *);
  int (*get_stride_gap) (uintptr_t, uint64_t, uint64_t, uint64_t, size_t, size_t, size_t, uint64_t, unsigned long int,
                         size_t, size_t, void *);
  int (*armw4) (uintptr_t, uint64_t, enum utofu_armw_op, uint32_t, uint64_t, uint64_t, unsigned long int, void *);
  int (*armw8) (uintptr_t, uint64_t, enum utofu_armw_op, uint64_t, uint64_t, uint64_t, unsigned long int, void *);
  int (*cswap4) (uintptr_t, uint64_t, uint32_t, uint32_t, uint64_t, uint64_t, unsigned long int, void *);
  int (*cswap8) (uintptr_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, unsigned long int, void *);
  int (*nop) (uintptr_t, unsigned long int, void *);
  int (*prepare_put) (uintptr_t, uint64_t, uint64_t, uint64_t, size_t, uint64_t, unsigned long int, void *, size_t *);
  int (*prepare_put_gap) (uintptr_t, uint64_t, uint64_t, uint64_t, size_t, uint64_t, unsigned long int, size_t, size_t,
                          void *, size_t *);
  int (*prepare_put_stride) (uintptr_t, uint64_t, uint64_t, uint64_t, size_t, size_t, size_t, uint64_t,
                             unsigned long int, void *, size_t *);
  int (*prepare_put_stride_gap) (uintptr_t, uint64_t, uint64_t, uint64_t, size_t, size_t, size_t, uint64_t,
                                 unsigned long int, size_t, size_t, void *, size_t *);
  int (*prepare_put_piggyback) (uintptr_t, uint64_t, void *, uint64_t, size_t, uint64_t, unsigned long int, void *,
                                size_t *);
  int (*prepare_put_piggyback8) (uintptr_t, uint64_t, uint64_t, uint64_t, size_t, uint64_t, unsigned long int, void *,
                                 size_t *);
  int (*prepare_get) (uintptr_t, uint64_t, uint64_t, uint64_t, size_t, uint64_t, unsigned long int, void *, size_t *);
  int (*prepare_get_gap) (uintptr_t, uint64_t, uint64_t, uint64_t, size_t, uint64_t, unsigned long int, size_t, size_t,
                          void *, size_t *);
  int (*prepare_get_stride) (uintptr_t, uint64_t, uint64_t, uint64_t, size_t, size_t, size_t, uint64_t,
                             unsigned long int, void *, size_t *);
  int (*prepare_get_stride_gap) (uintptr_t, uint64_t, uint64_t, uint64_t, size_t, size_t, size_t, uint64_t,
                                 unsigned long int, size_t, size_t, void *, size_t *);
  int (*prepare_armw4) (uintptr_t, uint64_t, enum utofu_armw_op, uint32_t, uint64_t, uint64_t, unsigned long int,
                        void *, size_t *);
  int (*prepare_armw8) (uintptr_t, uint64_t, enum utofu_armw_op, uint64_t, uint64_t, uint64_t, unsigned long int,
                        void *, size_t *);
  int (*prepare_cswap4) (uintptr_t, uint64_t, uint32_t, uint32_t, uint64_t, uint64_t, unsigned long int, void *,
                         size_t *);
  int (*prepare_cswap8) (uintptr_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, unsigned long int, void *,
                         size_t *);
  int (*prepare_nop) (uintptr_t, unsigned long int, void *, size_t *);
  int (*post_toq) (uintptr_t, void *, size_t, void *);
  int (*poll_tcq) (uintptr_t, unsigned long int, void **);
  int (*poll_mrq) (uintptr_t, unsigned long int, struct utofu_mrq_notice *);
  int (*query_num_unread_tcq) (uintptr_t, size_t *);
  int (*query_num_unread_mrq) (uintptr_t, size_t *);
  int (*barrier) (uint64_t, unsigned long int);
  int (*reduce_uint64) (uint64_t, enum utofu_reduce_op, uint64_t *, size_t, unsigned long int);
  int (*reduce_double) (uint64_t, enum utofu_reduce_op, double *, size_t, unsigned long int);
  int (*poll_barrier) (uint64_t, unsigned long int);
  int (*poll_reduce_uint64) (uint64_t, unsigned long int, uint64_t *);
  int (*poll_reduce_double) (uint64_t, unsigned long int, double *);
  void (*query_tofu_version) (int *, int *);
  void (*query_utofu_version) (int *, int *);
  int (*query_my_coords) (uint8_t *);
  void (*get_last_error) (const char *);
};

extern const struct functions functions;
const struct functions functions = {
  utofu_get_onesided_tnis,
  utofu_get_barrier_tnis,
  utofu_query_onesided_caps,
  utofu_query_barrier_caps,
  utofu_create_vcq,
  utofu_create_vcq_with_cmp_id,
  utofu_free_vcq,
  utofu_query_vcq_id,
  utofu_construct_vcq_id,
  utofu_set_vcq_id_path,
  utofu_query_vcq_info,
  utofu_alloc_vbg,
  utofu_free_vbg,
  utofu_set_vbg,
  utofu_query_vbg_info,
  utofu_get_path_id,
  utofu_get_path_coords,
  utofu_reg_mem,
  utofu_reg_mem_with_stag,
  utofu_query_stadd,
  utofu_dereg_mem,
  utofu_put,
  utofu_put_gap,
  utofu_put_stride,
  utofu_put_stride_gap,
  utofu_put_piggyback,
  utofu_put_piggyback8,
  utofu_get,
  utofu_get_gap,
  utofu_get_stride,
  utofu_get_stride_gap,
  utofu_armw4,
  utofu_armw8,
  utofu_cswap4,
  utofu_cswap8,
  utofu_nop,
  utofu_prepare_put,
  utofu_prepare_put_gap,
  utofu_prepare_put_stride,
  utofu_prepare_put_stride_gap,
  utofu_prepare_put_piggyback,
  utofu_prepare_put_piggyback8,
  utofu_prepare_get,
  utofu_prepare_get_gap,
  utofu_prepare_get_stride,
  utofu_prepare_get_stride_gap,
  utofu_prepare_armw4,
  utofu_prepare_armw8,
  utofu_prepare_cswap4,
  utofu_prepare_cswap8,
  utofu_prepare_nop,
  utofu_post_toq,
  utofu_poll_tcq,
  utofu_poll_mrq,
  utofu_query_num_unread_tcq,
  utofu_query_num_unread_mrq,
  utofu_barrier,
  utofu_reduce_uint64,
  utofu_reduce_double,
  utofu_poll_barrier,
  utofu_poll_reduce_uint64,
  utofu_poll_reduce_double,
  utofu_query_tofu_version,
  utofu_query_utofu_version,
  utofu_query_my_coords,
  utofu_get_last_error,
};

/* All functions have different addresses. */
int
main (void)
{
  typedef void (*function) (void);
  const function all[] = {
    (function) functions.get_onesided_tnis,
    (function) functions.get_barrier_tnis,
    (function) functions.query_onesided_caps,
    (function) functions.query_barrier_caps,
    (function) functions.create_vcq,
    (function) functions.create_vcq_with_cmp_id,
    (function) functions.free_vcq,
    (function) functions.query_vcq_id,
    (function) functions.construct_vcq_id,
    (function) functions.set_vcq_id_path,
    (function) functions.query_vcq_info,
    (function) functions.alloc_vbg,
    (function) functions.free_vbg,
    (function) functions.set_vbg,
    (function) functions.query_vbg_info,
    (function) functions.get_path_id,
    (function) functions.get_path_coords,
    (function) functions.reg_mem,
    (function) functions.reg_mem_with_stag,
    (function) functions.query_stadd,
    (function) functions.dereg_mem,
    (function) functions.put,
    (function) functions.put_gap,
    (function) functions.put_stride,
    (function) functions.put_stride_gap,
    (function) functions.put_piggyback,
    (function) functions.put_piggyback8,
    (function) functions.get,
    (function) functions.get_gap,
    (function) functions.get_stride,
    (function) functions.get_stride_gap,
    (function) functions.armw4,
    (function) functions.armw8,
    (function) functions.cswap4,
    (function) functions.cswap8,
    (function) functions.nop,
    (function) functions.prepare_put,
    (function) functions.prepare_put_gap,
    (function) functions.prepare_put_stride,
    (function) functions.prepare_put_stride_gap,
    (function) functions.prepare_put_piggyback,
    (function) functions.prepare_put_piggyback8,
    (function) functions.prepare_get,
    (function) functions.prepare_get_gap,
    (function) functions.prepare_get_stride,
    (function) functions.prepare_get_stride_gap,
    (function) functions.prepare_armw4,
    (function) functions.prepare_armw8,
    (function) functions.prepare_cswap4,
    (function) functions.prepare_cswap8,
    (function) functions.prepare_nop,
    (function) functions.post_toq,
    (function) functions.poll_tcq,
    (function) functions.poll_mrq,
    (function) functions.query_num_unread_tcq,
    (function) functions.query_num_unread_mrq,
    (function) functions.barrier,
    (function) functions.reduce_uint64,
    (function) functions.reduce_double,
    (function) functions.poll_barrier,
    (function) functions.poll_reduce_uint64,
    (function) functions.poll_reduce_double,
    (function) functions.query_tofu_version,
    (function) functions.query_utofu_version,
    (function) functions.query_my_coords,
    (function) functions.get_last_error,
  };
  const size_t count = sizeof all / sizeof all[0];
  for (size_t one = 0; one < count; one++)
    for (size_t other = 0; other < one; other++)
      if (all[one] == all[other])
        {
          fprintf (stderr, "functions %zu and %zu are the same\n", other, one);
          return 1;
        }
  printf ("%zu functions\n", count);
  return 0;
}
