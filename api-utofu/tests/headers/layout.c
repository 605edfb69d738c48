/*
 * Every value, width, size and offset that compiled programs rely on (LP64). Compiled only; as C99, C11 and C++.
 */
#include <utofu.h>

#include <stddef.h>
#include <stdint.h>

#if defined __cplusplus
#define SAME(what, expected) static_assert ((what) == (expected), #what)
#elif __STDC_VERSION__ >= 201112L
#define SAME(what, expected) _Static_assert ((what) == (expected), #what)
#else
/* C99 has no static assertion: an array of negative size instead. */
#define JOINED_(one, two) one##two
#define JOINED(one, two) JOINED_ (one, two)
#define SAME(what, expected) extern const char JOINED (same_on_line_, __LINE__)[(what) == (expected) ? 1 : -1]
#endif

/* A value and its type, which must be unsigned long int. */
#define FLAG(name, bit) \
  SAME (name, 1UL << (bit)); \
  FLAG_TYPE (name)
#ifdef __cplusplus
template <typename T> struct is_flag { static const bool value = false; };
template <> struct is_flag<unsigned long> { static const bool value = true; };
#define FLAG_TYPE(name) static_assert (is_flag<decltype (name)>::value, #name " is not unsigned long")
#else
#define FLAG_TYPE(name) extern __typeof__ (name) flag; extern unsigned long int flag
#endif

/* A type: its size and that it is unsigned. */
#define UNSIGNED(type, bytes) \
  SAME (sizeof (type), (size_t) (bytes)); \
  extern const char JOIN_UNSIGNED (type)[(type) -1 > (type) 0 ? 1 : -1]
#define JOIN_UNSIGNED(type) type##_is_unsigned

#define MEMBER(of, name, offset, bytes) \
  SAME (offsetof (struct of, name), (size_t) (offset)); \
  SAME (sizeof (((struct of *) 0)->name), (size_t) (bytes))

/* ---------------------------------------------------------------- macros */

FLAG (UTOFU_ONESIDED_CAP_FLAG_SESSION_MODE, 0);
FLAG (UTOFU_ONESIDED_CAP_FLAG_ARMW, 1);
FLAG (UTOFU_ONESIDED_CAP_ARMW_OP_CSWAP, 0);
FLAG (UTOFU_ONESIDED_CAP_ARMW_OP_SWAP, 1);
FLAG (UTOFU_ONESIDED_CAP_ARMW_OP_ADD, 2);
FLAG (UTOFU_ONESIDED_CAP_ARMW_OP_XOR, 3);
FLAG (UTOFU_ONESIDED_CAP_ARMW_OP_AND, 4);
FLAG (UTOFU_ONESIDED_CAP_ARMW_OP_OR, 5);
FLAG (UTOFU_BARRIER_CAP_REDUCE_OP_BARRIER, 1);
FLAG (UTOFU_BARRIER_CAP_REDUCE_OP_BAND, 2);
FLAG (UTOFU_BARRIER_CAP_REDUCE_OP_BOR, 3);
FLAG (UTOFU_BARRIER_CAP_REDUCE_OP_BXOR, 4);
FLAG (UTOFU_BARRIER_CAP_REDUCE_OP_MAX, 5);
FLAG (UTOFU_BARRIER_CAP_REDUCE_OP_MAXLOC, 6);
FLAG (UTOFU_BARRIER_CAP_REDUCE_OP_SUM, 7);
FLAG (UTOFU_BARRIER_CAP_REDUCE_OP_BFPSUM, 8);
FLAG (UTOFU_VCQ_FLAG_THREAD_SAFE, 0);
FLAG (UTOFU_VCQ_FLAG_EXCLUSIVE, 1);
FLAG (UTOFU_VCQ_FLAG_SESSION_MODE, 2);
FLAG (UTOFU_VBG_FLAG_THREAD_SAFE, 0);
FLAG (UTOFU_REG_MEM_FLAG_READ_ONLY, 0);
FLAG (UTOFU_ONESIDED_FLAG_STRONG_ORDER, 0);
FLAG (UTOFU_ONESIDED_FLAG_PACKET_RESPONSE, 1);
FLAG (UTOFU_ONESIDED_FLAG_REMOTE_MRQ_NOTICE, 2);
FLAG (UTOFU_ONESIDED_FLAG_PADDING, 3);
FLAG (UTOFU_ONESIDED_FLAG_CACHE_INJECTION, 5);
FLAG (UTOFU_ONESIDED_FLAG_DELAY_START, 8);
FLAG (UTOFU_ONESIDED_FLAG_TCQ_NOTICE, 14);
FLAG (UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE, 15);

SAME (UTOFU_VERSION_MAJOR, 1);
SAME (UTOFU_VERSION_MINOR, 0);
#if UTOFU_VERSION_MAJOR != 1 || UTOFU_VERSION_MINOR != 0
#error "the version must be usable in preprocessor conditions"
#endif

SAME (UTOFU_VBG_ID_NULL, UINT64_MAX);
SAME (sizeof (UTOFU_VBG_ID_NULL), 8u);
SAME (UTOFU_PATH_COORD_NULL, 255);
SAME (sizeof (UTOFU_PATH_COORD_NULL), 1u);

SAME (UTOFU_ONESIDED_FLAG_SPS (0), 0u);
SAME (UTOFU_ONESIDED_FLAG_SPS (1), 0x1000000u);
SAME (UTOFU_ONESIDED_FLAG_SPS (15), 0xf000000u);
SAME (UTOFU_ONESIDED_FLAG_SPS (7 + 1), 0x8000000u);
FLAG_TYPE (UTOFU_ONESIDED_FLAG_SPS (1));
SAME (UTOFU_ONESIDED_FLAG_PATH (0), 0u);
SAME (UTOFU_ONESIDED_FLAG_PATH (1), 0x10000000u);
SAME (UTOFU_ONESIDED_FLAG_PATH ((utofu_path_id_t) 255), 0xff0000000u);
SAME (UTOFU_ONESIDED_FLAG_PATH (254 + 1), 0xff0000000u);
FLAG_TYPE (UTOFU_ONESIDED_FLAG_PATH (1));
/* In a sum of flags, without parentheses of the caller's. */
SAME (UTOFU_ONESIDED_FLAG_TCQ_NOTICE | UTOFU_ONESIDED_FLAG_SPS (2) | UTOFU_ONESIDED_FLAG_PATH (3), 0x32004000u);

/* ---------------------------------------------------------------- types */

UNSIGNED (utofu_tni_id_t, 2);
UNSIGNED (utofu_cq_id_t, 2);
UNSIGNED (utofu_bg_id_t, 2);
UNSIGNED (utofu_cmp_id_t, 2);
UNSIGNED (utofu_vcq_hdl_t, 8);
UNSIGNED (utofu_vcq_id_t, 8);
UNSIGNED (utofu_vbg_id_t, 8);
UNSIGNED (utofu_path_id_t, 1);
UNSIGNED (utofu_stadd_t, 8);

/* ---------------------------------------------------------------- enumerations */

SAME (sizeof (enum utofu_return_code), 4u);
SAME ((int) UTOFU_SUCCESS, 0);
SAME ((int) UTOFU_ERR_NOT_FOUND, -1);
SAME ((int) UTOFU_ERR_NOT_COMPLETED, -2);
SAME ((int) UTOFU_ERR_NOT_PROCESSED, -3);
SAME ((int) UTOFU_ERR_BUSY, -4);
SAME ((int) UTOFU_ERR_USED, -5);
SAME ((int) UTOFU_ERR_FULL, -6);
SAME ((int) UTOFU_ERR_NOT_AVAILABLE, -7);
SAME ((int) UTOFU_ERR_NOT_SUPPORTED, -8);
SAME ((int) UTOFU_ERR_TCQ_OTHER, -128);
SAME ((int) UTOFU_ERR_TCQ_DESC, -129);
SAME ((int) UTOFU_ERR_TCQ_MEMORY, -130);
SAME ((int) UTOFU_ERR_TCQ_STADD, -131);
SAME ((int) UTOFU_ERR_TCQ_LENGTH, -132);
SAME ((int) UTOFU_ERR_MRQ_OTHER, -192);
SAME ((int) UTOFU_ERR_MRQ_PEER, -193);
SAME ((int) UTOFU_ERR_MRQ_LCL_MEMORY, -194);
SAME ((int) UTOFU_ERR_MRQ_RMT_MEMORY, -195);
SAME ((int) UTOFU_ERR_MRQ_LCL_STADD, -196);
SAME ((int) UTOFU_ERR_MRQ_RMT_STADD, -197);
SAME ((int) UTOFU_ERR_MRQ_LCL_LENGTH, -198);
SAME ((int) UTOFU_ERR_MRQ_RMT_LENGTH, -199);
SAME ((int) UTOFU_ERR_BARRIER_OTHER, -256);
SAME ((int) UTOFU_ERR_BARRIER_MISMATCH, -257);
SAME ((int) UTOFU_ERR_INVALID_ARG, -512);
SAME ((int) UTOFU_ERR_INVALID_POINTER, -513);
SAME ((int) UTOFU_ERR_INVALID_FLAGS, -514);
SAME ((int) UTOFU_ERR_INVALID_COORDS, -515);
SAME ((int) UTOFU_ERR_INVALID_PATH, -516);
SAME ((int) UTOFU_ERR_INVALID_TNI_ID, -517);
SAME ((int) UTOFU_ERR_INVALID_CQ_ID, -518);
SAME ((int) UTOFU_ERR_INVALID_BG_ID, -519);
SAME ((int) UTOFU_ERR_INVALID_CMP_ID, -520);
SAME ((int) UTOFU_ERR_INVALID_VCQ_HDL, -521);
SAME ((int) UTOFU_ERR_INVALID_VCQ_ID, -522);
SAME ((int) UTOFU_ERR_INVALID_VBG_ID, -523);
SAME ((int) UTOFU_ERR_INVALID_PATH_ID, -524);
SAME ((int) UTOFU_ERR_INVALID_STADD, -525);
SAME ((int) UTOFU_ERR_INVALID_ADDRESS, -526);
SAME ((int) UTOFU_ERR_INVALID_SIZE, -527);
SAME ((int) UTOFU_ERR_INVALID_STAG, -528);
SAME ((int) UTOFU_ERR_INVALID_EDATA, -529);
SAME ((int) UTOFU_ERR_INVALID_NUMBER, -530);
SAME ((int) UTOFU_ERR_INVALID_OP, -531);
SAME ((int) UTOFU_ERR_INVALID_DESC, -532);
SAME ((int) UTOFU_ERR_INVALID_DATA, -533);
SAME ((int) UTOFU_ERR_OUT_OF_RESOURCE, -640);
SAME ((int) UTOFU_ERR_OUT_OF_MEMORY, -641);
SAME ((int) UTOFU_ERR_FATAL, -768);

SAME (sizeof (enum utofu_armw_op), 4u);
SAME ((int) UTOFU_ARMW_OP_SWAP, 1);
SAME ((int) UTOFU_ARMW_OP_ADD, 2);
SAME ((int) UTOFU_ARMW_OP_XOR, 3);
SAME ((int) UTOFU_ARMW_OP_AND, 4);
SAME ((int) UTOFU_ARMW_OP_OR, 5);

SAME (sizeof (enum utofu_reduce_op), 4u);
SAME ((int) UTOFU_REDUCE_OP_BARRIER, 1);
SAME ((int) UTOFU_REDUCE_OP_BAND, 2);
SAME ((int) UTOFU_REDUCE_OP_BOR, 3);
SAME ((int) UTOFU_REDUCE_OP_BXOR, 4);
SAME ((int) UTOFU_REDUCE_OP_MAX, 5);
SAME ((int) UTOFU_REDUCE_OP_MAXLOC, 6);
SAME ((int) UTOFU_REDUCE_OP_SUM, 7);
SAME ((int) UTOFU_REDUCE_OP_BFPSUM, 8);

SAME (sizeof (enum utofu_mrq_notice_type), 4u);
SAME ((int) UTOFU_MRQ_TYPE_LCL_PUT, 0);
SAME ((int) UTOFU_MRQ_TYPE_RMT_PUT, 1);
SAME ((int) UTOFU_MRQ_TYPE_LCL_GET, 2);
SAME ((int) UTOFU_MRQ_TYPE_RMT_GET, 3);
SAME ((int) UTOFU_MRQ_TYPE_LCL_ARMW, 4);
SAME ((int) UTOFU_MRQ_TYPE_RMT_ARMW, 5);

/* ---------------------------------------------------------------- structures */

SAME (sizeof (struct utofu_onesided_caps), 88u);
MEMBER (utofu_onesided_caps, flags, 0, 8);
MEMBER (utofu_onesided_caps, armw_ops, 8, 8);
MEMBER (utofu_onesided_caps, num_cmp_ids, 16, 4);
MEMBER (utofu_onesided_caps, num_reserved_stags, 20, 4);
MEMBER (utofu_onesided_caps, cache_line_size, 24, 8);
MEMBER (utofu_onesided_caps, stag_address_alignment, 32, 8);
MEMBER (utofu_onesided_caps, max_toq_desc_size, 40, 8);
MEMBER (utofu_onesided_caps, max_putget_size, 48, 8);
MEMBER (utofu_onesided_caps, max_piggyback_size, 56, 8);
MEMBER (utofu_onesided_caps, max_edata_size, 64, 8);
MEMBER (utofu_onesided_caps, max_mtu, 72, 8);
MEMBER (utofu_onesided_caps, max_gap, 80, 8);

SAME (sizeof (struct utofu_barrier_caps), 32u);
MEMBER (utofu_barrier_caps, flags, 0, 8);
MEMBER (utofu_barrier_caps, reduce_ops, 8, 8);
MEMBER (utofu_barrier_caps, max_uint64_reduction, 16, 8);
MEMBER (utofu_barrier_caps, max_double_reduction, 24, 8);

SAME (sizeof (struct utofu_vbg_setting), 48u);
MEMBER (utofu_vbg_setting, vbg_id, 0, 8);
MEMBER (utofu_vbg_setting, src_lcl_vbg_id, 8, 8);
MEMBER (utofu_vbg_setting, src_rmt_vbg_id, 16, 8);
MEMBER (utofu_vbg_setting, dst_lcl_vbg_id, 24, 8);
MEMBER (utofu_vbg_setting, dst_rmt_vbg_id, 32, 8);
MEMBER (utofu_vbg_setting, dst_path_coords, 40, 3);

SAME (sizeof (struct utofu_mrq_notice), 64u);
MEMBER (utofu_mrq_notice, notice_type, 0, 1);
MEMBER (utofu_mrq_notice, padding1, 1, 7);
MEMBER (utofu_mrq_notice, vcq_id, 8, 8);
MEMBER (utofu_mrq_notice, edata, 16, 8);
MEMBER (utofu_mrq_notice, rmt_value, 24, 8);
MEMBER (utofu_mrq_notice, lcl_stadd, 32, 8);
MEMBER (utofu_mrq_notice, rmt_stadd, 40, 8);
MEMBER (utofu_mrq_notice, reserved, 48, 16);
