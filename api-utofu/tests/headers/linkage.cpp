// Declares all functions again, with C linkage. C++ refuses a declaration that differs from the header in a type or in linkage.
#include <utofu.h>

extern "C" {

int utofu_get_onesided_tnis (uint16_t **, size_t *);
int utofu_get_barrier_tnis (uint16_t **, size_t *);
int utofu_query_onesided_caps (uint16_t, struct utofu_onesided_caps **);
int utofu_query_barrier_caps (uint16_t, struct utofu_barrier_caps **);
int utofu_create_vcq (uint16_t, unsigned long int, uintptr_t *);
int utofu_create_vcq_with_cmp_id (uint16_t, uint16_t, unsigned long int, uintptr_t *);
int utofu_free_vcq (uintptr_t);
int utofu_query_vcq_id (uintptr_t, uint64_t *);
int utofu_construct_vcq_id (uint8_t *, uint16_t, uint16_t, uint16_t, uint64_t *);
int utofu_set_vcq_id_path (uint64_t *, uint8_t *);
int utofu_query_vcq_info (uint64_t, uint8_t *, uint16_t *, uint16_t *, uint16_t *);
int utofu_alloc_vbg (uint16_t, size_t, unsigned long int, uint64_t *);
int utofu_free_vbg (uint64_t *, size_t);
int utofu_set_vbg (struct utofu_vbg_setting *, size_t);
int utofu_query_vbg_info (uint64_t, uint8_t *, uint16_t *, uint16_t *, uint16_t *);
int utofu_get_path_id (uint64_t, uint8_t *, uint8_t *);
int utofu_get_path_coords (uint64_t, uint8_t, uint8_t *);
int utofu_reg_mem (uintptr_t, void *, size_t, unsigned long int, uint64_t *);
int utofu_reg_mem_with_stag (uintptr_t, void *, size_t, unsigned int, unsigned long int, uint64_t *);
int utofu_query_stadd (uint64_t, unsigned int, uint64_t *);
int utofu_dereg_mem (uintptr_t, uint64_t, unsigned long int);
int utofu_put (uintptr_t, uint64_t, uint64_t, uint64_t, size_t, uint64_t, unsigned long int, void *);
int utofu_put_gap (uintptr_t, uint64_t, uint64_t, uint64_t, size_t, uint64_t, unsigned long int, size_t, size_t,
                   void *);
int utofu_put_stride (uintptr_t, uint64_t, uint64_t, uint64_t, size_t, size_t, size_t, uint64_t, unsigned long int,
                      void *);
int utofu_put_stride_gap (uintptr_t, uint64_t, uint64_t, uint64_t, size_t, size_t, size_t, uint64_t, unsigned long int,
                          size_t, size_t, void *);
int utofu_put_piggyback (uintptr_t, uint64_t, void *, uint64_t, size_t, uint64_t, unsigned long int, void *);
int utofu_put_piggyback8 (uintptr_t, uint64_t, uint64_t, uint64_t, size_t, uint64_t, unsigned long int, void *);
int utofu_get (uintptr_t, uint64_t, uint64_t, uint64_t, size_t, uint64_t, unsigned long int, void *);
int utofu_get_gap (uintptr_t, uint64_t, uint64_t, uint64_t, size_t, uint64_t, unsigned long int, size_t, size_t,
                   void *);
int utofu_get_stride (uintptr_t, uint64_t, uint64_t, uint64_t, size_t, size_t, size_t, uint64_t, unsigned long int,
                      void *);
int utofu_get_stride_gap (uintptr_t, uint64_t, uint64_t, uint64_t, size_t, size_t, size_t, uint64_t, unsigned long int,
                          size_t, size_t, void *);
int utofu_armw4 (uintptr_t, uint64_t, enum utofu_armw_op, uint32_t, uint64_t, uint64_t, unsigned long int, void *);
int utofu_armw8 (uintptr_t, uint64_t, enum utofu_armw_op, uint64_t, uint64_t, uint64_t, unsigned long int, void *);
int utofu_cswap4 (uintptr_t, uint64_t, uint32_t, uint32_t, uint64_t, uint64_t, unsigned long int, void *);
int utofu_cswap8 (uintptr_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, unsigned long int, void *);
int utofu_nop (uintptr_t, unsigned long int, void *);
int utofu_prepare_put (uintptr_t, uint64_t, uint64_t, uint64_t, size_t, uint64_t, unsigned long int, void *, size_t *);
int utofu_prepare_put_gap (uintptr_t, uint64_t, uint64_t, uint64_t, size_t, uint64_t, unsigned long int, size_t, size_t,
                           void *, size_t *);
int utofu_prepare_put_stride (uintptr_t, uint64_t, uint64_t, uint64_t, size_t, size_t, size_t, uint64_t,
                              unsigned long int, void *, size_t *);
int utofu_prepare_put_stride_gap (uintptr_t, uint64_t, uint64_t, uint64_t, size_t, size_t, size_t, uint64_t,
                                  unsigned long int, size_t, size_t, void *, size_t *);
int utofu_prepare_put_piggyback (uintptr_t, uint64_t, void *, uint64_t, size_t, uint64_t, unsigned long int, void *,
                                 size_t *);
int utofu_prepare_put_piggyback8 (uintptr_t, uint64_t, uint64_t, uint64_t, size_t, uint64_t, unsigned long int, void *,
                                  size_t *);
int utofu_prepare_get (uintptr_t, uint64_t, uint64_t, uint64_t, size_t, uint64_t, unsigned long int, void *, size_t *);
int utofu_prepare_get_gap (uintptr_t, uint64_t, uint64_t, uint64_t, size_t, uint64_t, unsigned long int, size_t, size_t,
                           void *, size_t *);
int utofu_prepare_get_stride (uintptr_t, uint64_t, uint64_t, uint64_t, size_t, size_t, size_t, uint64_t,
                              unsigned long int, void *, size_t *);
int utofu_prepare_get_stride_gap (uintptr_t, uint64_t, uint64_t, uint64_t, size_t, size_t, size_t, uint64_t,
                                  unsigned long int, size_t, size_t, void *, size_t *);
int utofu_prepare_armw4 (uintptr_t, uint64_t, enum utofu_armw_op, uint32_t, uint64_t, uint64_t, unsigned long int,
                         void *, size_t *);
int utofu_prepare_armw8 (uintptr_t, uint64_t, enum utofu_armw_op, uint64_t, uint64_t, uint64_t, unsigned long int,
                         void *, size_t *);
int utofu_prepare_cswap4 (uintptr_t, uint64_t, uint32_t, uint32_t, uint64_t, uint64_t, unsigned long int, void *,
                          size_t *);
int utofu_prepare_cswap8 (uintptr_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, unsigned long int, void *,
                          size_t *);
int utofu_prepare_nop (uintptr_t, unsigned long int, void *, size_t *);
int utofu_post_toq (uintptr_t, void *, size_t, void *);
int utofu_poll_tcq (uintptr_t, unsigned long int, void **);
int utofu_poll_mrq (uintptr_t, unsigned long int, struct utofu_mrq_notice *);
int utofu_query_num_unread_tcq (uintptr_t, size_t *);
int utofu_query_num_unread_mrq (uintptr_t, size_t *);
int utofu_barrier (uint64_t, unsigned long int);
int utofu_reduce_uint64 (uint64_t, enum utofu_reduce_op, uint64_t *, size_t, unsigned long int);
int utofu_reduce_double (uint64_t, enum utofu_reduce_op, double *, size_t, unsigned long int);
int utofu_poll_barrier (uint64_t, unsigned long int);
int utofu_poll_reduce_uint64 (uint64_t, unsigned long int, uint64_t *);
int utofu_poll_reduce_double (uint64_t, unsigned long int, double *);
void utofu_query_tofu_version (int *, int *);
void utofu_query_utofu_version (int *, int *);
int utofu_query_my_coords (uint8_t *);
void utofu_get_last_error (const char *);

}
