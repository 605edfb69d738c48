/*
 * uTofu: one-sided and barrier communication between the nodes of a six-dimensional mesh (uTofu User's Guide, July 2021; clause
 * numbers below are of that text). Link with -ltofucom. No call starts or ends the library.
 *
 * Sizes are in bytes. Coordinates of a node are the six numbers X, Y, Z, A, B, C; coordinates of a path are A, B, C.
 * No function blocks. One function starts an operation, and polls of another find its completion. Functions return
 *   UTOFU_SUCCESS       done, or started;
 *   UTOFU_ERR_*         negative, see enum utofu_return_code; some mean: no result yet, or no room yet.
 * A wrong argument gives the UTOFU_ERR_INVALID_* of its kind, a null pointer UTOFU_ERR_INVALID_POINTER. The comments name the other
 * codes of a function. Pass 0 for a parameter "flags" that has no macros in this file.
 *
 * Threads (§2.5): functions of clauses 3.6 and 3.7 on queues that share a CQ must not run at the same time, nor functions of clause 3.8
 * on one gate. Exceptions: a queue or gate with the flag THREAD_SAFE, and a queue with EXCLUSIVE. All other functions may.
 */
#ifndef UNIPGAS_UTOFU_H
#define UNIPGAS_UTOFU_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Version of this header; utofu_query_utofu_version() returns the version of the library. §3.9.3. */
#define UTOFU_VERSION_MAJOR 1
#define UTOFU_VERSION_MINOR 0

/* ---------------------------------------------------------------- types (§3.1) */

typedef uint16_t  utofu_tni_id_t;  /* network interface of a node, from 0 */
typedef uint16_t  utofu_cq_id_t;   /* control queue of an interface, from 0 */
typedef uint16_t  utofu_bg_id_t;   /* barrier gate of an interface, from 0 */
typedef uint16_t  utofu_cmp_id_t;  /* component: distinguishes queues that share a CQ */
typedef uintptr_t utofu_vcq_hdl_t; /* virtual control queue (VCQ), for the process that created it */
typedef uint64_t  utofu_vcq_id_t;  /* VCQ, for all processes; holds coordinates of a path as well */
typedef uint64_t  utofu_vbg_id_t;  /* virtual barrier gate (VBG), for all processes */
typedef uint8_t   utofu_path_id_t; /* path to one VCQ */
typedef uint64_t  utofu_stadd_t;   /* steering address (STADD) of registered memory; adding a number of bytes is allowed */

/** Results of functions. §3.1.2.1. */
enum utofu_return_code
{
  UTOFU_SUCCESS = 0,

  UTOFU_ERR_NOT_FOUND = -1,     /* no notice is waiting */
  UTOFU_ERR_NOT_COMPLETED = -2, /* poll again */
  UTOFU_ERR_NOT_PROCESSED = -3, /* not executed */
  UTOFU_ERR_BUSY = -4,          /* no room, or in use: poll, then try again */
  UTOFU_ERR_USED = -5,          /* in use: try another one */
  UTOFU_ERR_FULL = -6,          /* no more of these */
  UTOFU_ERR_NOT_AVAILABLE = -7, /* not of this kind, now */
  UTOFU_ERR_NOT_SUPPORTED = -8, /* not of this kind, ever */

  /* Results of utofu_poll_tcq(): a request that was not sent. */
  UTOFU_ERR_TCQ_OTHER = -128,
  UTOFU_ERR_TCQ_DESC = -129,   /* descriptor */
  UTOFU_ERR_TCQ_MEMORY = -130, /* local memory cannot be accessed */
  UTOFU_ERR_TCQ_STADD = -131,  /* local address is not registered */
  UTOFU_ERR_TCQ_LENGTH = -132, /* local address and length leave the registered memory */

  /* Results of utofu_poll_mrq(): a request that was sent and failed. */
  UTOFU_ERR_MRQ_OTHER = -192,
  UTOFU_ERR_MRQ_PEER = -193,       /* the peer has no such queue, or its process has ended */
  UTOFU_ERR_MRQ_LCL_MEMORY = -194, /* local memory cannot be accessed */
  UTOFU_ERR_MRQ_RMT_MEMORY = -195, /* remote memory cannot be accessed */
  UTOFU_ERR_MRQ_LCL_STADD = -196,  /* local address is not registered */
  UTOFU_ERR_MRQ_RMT_STADD = -197,  /* remote address is not registered */
  UTOFU_ERR_MRQ_LCL_LENGTH = -198, /* local address and length leave the registered memory */
  UTOFU_ERR_MRQ_RMT_LENGTH = -199, /* remote address and length leave the registered memory */

  /* Results of polls of barrier communication. */
  UTOFU_ERR_BARRIER_OTHER = -256,
  UTOFU_ERR_BARRIER_MISMATCH = -257, /* processes have started different operations */

  /* Arguments. */
  UTOFU_ERR_INVALID_ARG = -512,
  UTOFU_ERR_INVALID_POINTER = -513,
  UTOFU_ERR_INVALID_FLAGS = -514,
  UTOFU_ERR_INVALID_COORDS = -515,
  UTOFU_ERR_INVALID_PATH = -516,
  UTOFU_ERR_INVALID_TNI_ID = -517,
  UTOFU_ERR_INVALID_CQ_ID = -518,
  UTOFU_ERR_INVALID_BG_ID = -519,
  UTOFU_ERR_INVALID_CMP_ID = -520,
  UTOFU_ERR_INVALID_VCQ_HDL = -521,
  UTOFU_ERR_INVALID_VCQ_ID = -522,
  UTOFU_ERR_INVALID_VBG_ID = -523,
  UTOFU_ERR_INVALID_PATH_ID = -524,
  UTOFU_ERR_INVALID_STADD = -525,
  UTOFU_ERR_INVALID_ADDRESS = -526,
  UTOFU_ERR_INVALID_SIZE = -527,
  UTOFU_ERR_INVALID_STAG = -528,
  UTOFU_ERR_INVALID_EDATA = -529,
  UTOFU_ERR_INVALID_NUMBER = -530,
  UTOFU_ERR_INVALID_OP = -531,
  UTOFU_ERR_INVALID_DESC = -532,
  UTOFU_ERR_INVALID_DATA = -533,

  UTOFU_ERR_OUT_OF_RESOURCE = -640,
  UTOFU_ERR_OUT_OF_MEMORY = -641,
  UTOFU_ERR_FATAL = -768
};

/* ---------------------------------------------------------------- network interfaces (§3.2) */

/** One-sided communication of an interface. §3.2.2.1. */
struct utofu_onesided_caps
{
  unsigned long int flags;       /* UTOFU_ONESIDED_CAP_FLAG_* */
  unsigned long int armw_ops;    /* UTOFU_ONESIDED_CAP_ARMW_OP_* */
  unsigned int num_cmp_ids;      /* component ids are below this */
  unsigned int num_reserved_stags; /* STags for utofu_reg_mem_with_stag() are below this, for each VCQ */
  size_t cache_line_size;        /* bytes that become visible together */
  size_t stag_address_alignment; /* for address and size in utofu_reg_mem_with_stag() */
  size_t max_toq_desc_size;      /* room for one prepared descriptor */
  size_t max_putget_size;
  size_t max_piggyback_size;
  size_t max_edata_size;
  size_t max_mtu;
  size_t max_gap;
};

/** Barrier communication of an interface. §3.2.2.2. */
struct utofu_barrier_caps
{
  unsigned long int flags;      /* none is defined */
  unsigned long int reduce_ops; /* UTOFU_BARRIER_CAP_REDUCE_OP_* */
  size_t max_uint64_reduction;  /* elements of a reduction */
  size_t max_double_reduction;
};

/** utofu_onesided_caps.flags. §3.2.3.1. */
#define UTOFU_ONESIDED_CAP_FLAG_SESSION_MODE (1UL << 0)
#define UTOFU_ONESIDED_CAP_FLAG_ARMW         (1UL << 1)

/** utofu_onesided_caps.armw_ops. §3.2.3.3. */
#define UTOFU_ONESIDED_CAP_ARMW_OP_CSWAP (1UL << 0)
#define UTOFU_ONESIDED_CAP_ARMW_OP_SWAP  (1UL << 1)
#define UTOFU_ONESIDED_CAP_ARMW_OP_ADD   (1UL << 2)
#define UTOFU_ONESIDED_CAP_ARMW_OP_XOR   (1UL << 3)
#define UTOFU_ONESIDED_CAP_ARMW_OP_AND   (1UL << 4)
#define UTOFU_ONESIDED_CAP_ARMW_OP_OR    (1UL << 5)

/** utofu_barrier_caps.reduce_ops. §3.2.3.4. */
#define UTOFU_BARRIER_CAP_REDUCE_OP_BARRIER (1UL << 1)
#define UTOFU_BARRIER_CAP_REDUCE_OP_BAND    (1UL << 2)
#define UTOFU_BARRIER_CAP_REDUCE_OP_BOR     (1UL << 3)
#define UTOFU_BARRIER_CAP_REDUCE_OP_BXOR    (1UL << 4)
#define UTOFU_BARRIER_CAP_REDUCE_OP_MAX     (1UL << 5)
#define UTOFU_BARRIER_CAP_REDUCE_OP_MAXLOC  (1UL << 6)
#define UTOFU_BARRIER_CAP_REDUCE_OP_SUM     (1UL << 7)
#define UTOFU_BARRIER_CAP_REDUCE_OP_BFPSUM  (1UL << 8)

/**
 * Sets *tni_ids to a new array of the interfaces for one-sided communication, for the caller to free(), and *num_tnis to its
 * length; to NULL and 0 if there is none. §3.2.1.1.
 */
int utofu_get_onesided_tnis (utofu_tni_id_t **tni_ids, size_t *num_tnis);

/** The same for barrier communication. §3.2.1.2. */
int utofu_get_barrier_tnis (utofu_tni_id_t **tni_ids, size_t *num_tnis);

/** Sets *tni_caps to the capabilities of an interface. The library owns them: do not change or free them. §3.2.1.3. */
int utofu_query_onesided_caps (utofu_tni_id_t tni_id, struct utofu_onesided_caps **tni_caps);

/** The same for barrier communication. §3.2.1.4. */
int utofu_query_barrier_caps (utofu_tni_id_t tni_id, struct utofu_barrier_caps **tni_caps);

/* ---------------------------------------------------------------- queues (§3.3) */

/** Flags of utofu_create_vcq(). §3.3.4.1. */
#define UTOFU_VCQ_FLAG_THREAD_SAFE  (1UL << 0) /* threads may use it at the same time */
#define UTOFU_VCQ_FLAG_EXCLUSIVE    (1UL << 1) /* shares its CQ with no other VCQ */
#define UTOFU_VCQ_FLAG_SESSION_MODE (1UL << 2) /* requests wait until a put arrives (§2.2.8); not with EXCLUSIVE */

/** Creates a VCQ with a component id that is free. §3.3.1.1. Errors: FULL, NOT_AVAILABLE, NOT_SUPPORTED (of this kind). */
int utofu_create_vcq (utofu_tni_id_t tni_id, unsigned long int flags, utofu_vcq_hdl_t *vcq_hdl);

/**
 * Creates a VCQ with a given component id, so that peers can compute its id with utofu_construct_vcq_id(). The flags EXCLUSIVE and
 * SESSION_MODE are not allowed here. §3.3.1.2. Errors: USED (the component id); as utofu_create_vcq().
 */
int utofu_create_vcq_with_cmp_id (utofu_tni_id_t tni_id, utofu_cmp_id_t cmp_id, unsigned long int flags,
                                  utofu_vcq_hdl_t *vcq_hdl);

/**
 * Frees a VCQ of this process; once. It waits for the end of calls that other threads make with it; later ones give INVALID_VCQ_HDL.
 * §3.3.1.3. Errors: BUSY (in a handler of a signal that has interrupted a call).
 */
int utofu_free_vcq (utofu_vcq_hdl_t vcq_hdl);

/** Sets *vcq_id to the id by which peers reach a VCQ of this process. Its path is A, B, C of this node. §3.3.2.1. */
int utofu_query_vcq_id (utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t *vcq_id);

/** Computes the id of a VCQ that was or will be created with a component id, on the node at coords[6]. §3.3.2.2. */
int utofu_construct_vcq_id (uint8_t coords[], utofu_tni_id_t tni_id, utofu_cq_id_t cq_id, utofu_cmp_id_t cmp_id,
                            utofu_vcq_id_t *vcq_id);

/** Puts the path path_coords[3] into *vcq_id; NULL: the path is chosen. No other copy of the id changes. §3.3.2.3. */
int utofu_set_vcq_id_path (utofu_vcq_id_t *vcq_id, uint8_t path_coords[]);

/** Takes the id of a VCQ, also of a peer's, apart; coords[6]. *extra_val has no meaning for programs. §3.3.3.1. */
int utofu_query_vcq_info (utofu_vcq_id_t vcq_id, uint8_t coords[], utofu_tni_id_t *tni_id, utofu_cq_id_t *cq_id,
                          uint16_t *extra_val);

/* ---------------------------------------------------------------- barrier gates (§3.4) */

/** Flag of utofu_alloc_vbg(). §3.4.5.1. */
#define UTOFU_VBG_FLAG_THREAD_SAFE (1UL << 0)

/** No gate: this input or output is not used. §3.4.6.1. */
#define UTOFU_VBG_ID_NULL ((utofu_vbg_id_t) -1)

/** Neighbours of one gate in a barrier circuit, each a gate or UTOFU_VBG_ID_NULL. §3.4.4.1. */
struct utofu_vbg_setting
{
  utofu_vbg_id_t vbg_id;         /* the gate */
  utofu_vbg_id_t src_lcl_vbg_id; /* gate of the same allocation that the signal comes from */
  utofu_vbg_id_t src_rmt_vbg_id; /* gate that the packet comes from */
  utofu_vbg_id_t dst_lcl_vbg_id; /* gate of the same allocation that the signal goes to */
  utofu_vbg_id_t dst_rmt_vbg_id; /* gate that the packet goes to */
  uint8_t dst_path_coords[3];    /* path of the packet; UTOFU_PATH_COORD_NULL as the first: it is chosen */
};

/**
 * Allocates num_vbgs > 0 gates: vbg_ids[0] is the start/end gate, the others are relay gates. §3.4.1.1.
 * Errors: FULL (not as many left), NOT_AVAILABLE, NOT_SUPPORTED.
 */
int utofu_alloc_vbg (utofu_tni_id_t tni_id, size_t num_vbgs, unsigned long int flags, utofu_vbg_id_t vbg_ids[]);

/**
 * Frees the gates of one allocation, all of them together; once. It waits for the end of calls that other threads make with them; later
 * ones give INVALID_VBG_ID. §3.4.1.2. Errors: BUSY (in a handler of a signal that has interrupted a call).
 */
int utofu_free_vbg (utofu_vbg_id_t vbg_ids[], size_t num_vbgs);

/**
 * Connects gates of one allocation; vbg_settings[0] is that of the start/end gate. The last call holds. All processes must have
 * done so before one starts communication. §3.4.2.1.
 */
int utofu_set_vbg (struct utofu_vbg_setting vbg_settings[], size_t num_vbg_settings);

/** Takes the id of a gate, also of a peer's, apart; coords[6]. *extra_val has no meaning for programs. §3.4.3.1. */
int utofu_query_vbg_info (utofu_vbg_id_t vbg_id, uint8_t coords[], utofu_tni_id_t *tni_id, utofu_bg_id_t *bg_id,
                          uint16_t *extra_val);

/* ---------------------------------------------------------------- paths (§3.5) */

/** As the first coordinate of a path in struct utofu_vbg_setting: the path is chosen. §3.5.2.1. */
#define UTOFU_PATH_COORD_NULL ((uint8_t) -1)

/** Sets *path_id to the path path_coords[3] (NULL: the library chooses) to vcq_id. It is valid for this vcq_id only. §3.5.1.1. */
int utofu_get_path_id (utofu_vcq_id_t vcq_id, uint8_t path_coords[], utofu_path_id_t *path_id);

/** Sets path_coords[3] to the coordinates of a path id of vcq_id. §3.5.1.2. */
int utofu_get_path_coords (utofu_vcq_id_t vcq_id, utofu_path_id_t path_id, uint8_t path_coords[]);

/* ---------------------------------------------------------------- memory (§3.6) */

/** Flag of utofu_reg_mem(): neither this process nor a peer writes there by communication. §3.6.2.1. */
#define UTOFU_REG_MEM_FLAG_READ_ONLY (1UL << 0)

/**
 * Registers size > 0 bytes for a VCQ and sets *stadd to the address of the first. Registering the same memory again gives the same
 * address. §3.6.1.1. Errors: FULL, NOT_AVAILABLE, NOT_SUPPORTED.
 */
int utofu_reg_mem (utofu_vcq_hdl_t vcq_hdl, void *addr, size_t size, unsigned long int flags, utofu_stadd_t *stadd);

/**
 * Registers memory under a STag of the program's choice, so that peers find it with utofu_query_stadd(). Address and size are
 * multiples of utofu_onesided_caps.stag_address_alignment. §3.6.1.2. Errors: USED (the STag), NOT_AVAILABLE, NOT_SUPPORTED.
 */
int utofu_reg_mem_with_stag (utofu_vcq_hdl_t vcq_hdl, void *addr, size_t size, unsigned int stag,
                             unsigned long int flags, utofu_stadd_t *stadd);

/** Sets *stadd to the begin of the memory that is registered for vcq_id under a STag. It does not communicate. §3.6.1.3. */
int utofu_query_stadd (utofu_vcq_id_t vcq_id, unsigned int stag, utofu_stadd_t *stadd);

/**
 * Undoes one registration; before the memory is freed. Commands of other threads with the memory are done, fail or give INVALID_STADD. §3.6.1.4.
 * Errors: NOT_AVAILABLE, NOT_SUPPORTED.
 */
int utofu_dereg_mem (utofu_vcq_hdl_t vcq_hdl, utofu_stadd_t stadd, unsigned long int flags);

/* ---------------------------------------------------------------- one-sided communication: flags and notices (§3.7.6 to §3.7.10) */

/** Flags of one-sided communication. §3.7.9.1. */
#define UTOFU_ONESIDED_FLAG_STRONG_ORDER      (1UL << 0)  /* reads and writes after the earlier requests on the same way (§2.2.10) */
#define UTOFU_ONESIDED_FLAG_PACKET_RESPONSE   (1UL << 1)  /* has no effect */
#define UTOFU_ONESIDED_FLAG_REMOTE_MRQ_NOTICE (1UL << 2)  /* the peer's utofu_poll_mrq() returns a notice of the completion */
#define UTOFU_ONESIDED_FLAG_PADDING           (1UL << 3)  /* a piggyback put may write the rest of the cache line too */
#define UTOFU_ONESIDED_FLAG_CACHE_INJECTION   (1UL << 5)  /* writes into the cache if possible */
#define UTOFU_ONESIDED_FLAG_DELAY_START       (1UL << 8)  /* may start with the next request that has not this flag */
#define UTOFU_ONESIDED_FLAG_TCQ_NOTICE        (1UL << 14) /* utofu_poll_tcq() returns a notice when it is sent */
#define UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE  (1UL << 15) /* utofu_poll_mrq() returns a notice of the completion */

/** Path by its id, from 0 to 255; wins against the path in the VCQ id. §3.7.9.2. */
#define UTOFU_ONESIDED_FLAG_PATH(path_id) ((unsigned long int) (path_id) << 28)

/** In a put: number of requests, from 0 to 15, that it starts in a peer's VCQ of session mode; INVALID_FLAGS elsewhere. §3.7.9.3, §2.2.8.1. */
#define UTOFU_ONESIDED_FLAG_SPS(sps) ((unsigned long int) (sps) << 24)

/** Operations of utofu_armw4() and utofu_armw8(); UTOFU_ONESIDED_CAP_ARMW_OP_* are not numbered alike. §3.7.7.1. */
enum utofu_armw_op
{
  UTOFU_ARMW_OP_SWAP = 1,
  UTOFU_ARMW_OP_ADD = 2,
  UTOFU_ARMW_OP_XOR = 3,
  UTOFU_ARMW_OP_AND = 4,
  UTOFU_ARMW_OP_OR = 5
};

/** utofu_mrq_notice.notice_type: at the side that requested (LCL) or at its peer (RMT). §3.7.8.1. */
enum utofu_mrq_notice_type
{
  UTOFU_MRQ_TYPE_LCL_PUT = 0,
  UTOFU_MRQ_TYPE_RMT_PUT = 1,
  UTOFU_MRQ_TYPE_LCL_GET = 2,
  UTOFU_MRQ_TYPE_RMT_GET = 3,
  UTOFU_MRQ_TYPE_LCL_ARMW = 4,
  UTOFU_MRQ_TYPE_RMT_ARMW = 5
};

/** A notice of utofu_poll_mrq(). §3.7.6.1. */
struct utofu_mrq_notice
{
  uint8_t notice_type;     /* UTOFU_MRQ_TYPE_* */
  uint8_t padding1[7];
  utofu_vcq_id_t vcq_id;   /* the peer, with A, B, C of its node as the path */
  uint64_t edata;          /* edata of the request */
  uint64_t rmt_value;      /* LCL_ARMW: value before the operation, zero-extended; RMT_ARMW: as rmt_stadd (not in the guide) */
  utofu_stadd_t lcl_stadd; /* end of the data at the requesting side; LCL_GET and RMT_GET only */
  utofu_stadd_t rmt_stadd; /* end of the data at its peer, for ARMW the begin; all but LCL_GET */
  uint64_t reserved[2];
};

/* ---------------------------------------------------------------- one-sided communication: start (§3.7.1)
 * rmt_vcq_id is the peer's VCQ, lcl_stadd and rmt_stadd are addresses in memory registered for the own and for the peer's VCQ.
 * edata, of at most max_edata_size bytes, comes with MRQ notices; cbdata comes with the TCQ notice. With any flags, poll both
 * queues, for errors and to make room. Error of all of these functions: BUSY (no room: poll the TCQ).
 */

/** Writes length bytes from lcl_stadd to rmt_stadd, at most max_putget_size. §3.7.1.1. */
int utofu_put (utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, utofu_stadd_t lcl_stadd, utofu_stadd_t rmt_stadd,
               size_t length, uint64_t edata, unsigned long int flags, void *cbdata);

/** The same with packets of at most mtu bytes and a gap of up to max_gap between them. §3.7.1.2. */
int utofu_put_gap (utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, utofu_stadd_t lcl_stadd, utofu_stadd_t rmt_stadd,
                   size_t length, uint64_t edata, unsigned long int flags, size_t mtu, size_t gap, void *cbdata);

/** num_blocks puts of length bytes each, the next one stride bytes on at both sides; notices for each of them. §3.7.1.3. */
int utofu_put_stride (utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, utofu_stadd_t lcl_stadd,
                      utofu_stadd_t rmt_stadd, size_t length, size_t stride, size_t num_blocks, uint64_t edata,
                      unsigned long int flags, void *cbdata);

/** utofu_put_stride() with packet size and gap. §3.7.1.4. */
int utofu_put_stride_gap (utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, utofu_stadd_t lcl_stadd,
                          utofu_stadd_t rmt_stadd, size_t length, size_t stride, size_t num_blocks, uint64_t edata,
                          unsigned long int flags, size_t mtu, size_t gap, void *cbdata);

/** Writes length bytes, at most max_piggyback_size, that are read before the function returns. §3.7.1.5. */
int utofu_put_piggyback (utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, void *lcl_data, utofu_stadd_t rmt_stadd,
                         size_t length, uint64_t edata, unsigned long int flags, void *cbdata);

/** Writes the lower length bytes, at most 8, of a value. §3.7.1.6. */
int utofu_put_piggyback8 (utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, uint64_t lcl_data,
                          utofu_stadd_t rmt_stadd, size_t length, uint64_t edata, unsigned long int flags,
                          void *cbdata);

/** Reads length bytes from rmt_stadd to lcl_stadd, at most max_putget_size. §3.7.1.7. */
int utofu_get (utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, utofu_stadd_t lcl_stadd, utofu_stadd_t rmt_stadd,
               size_t length, uint64_t edata, unsigned long int flags, void *cbdata);

/** The same with packet size and gap. §3.7.1.8. */
int utofu_get_gap (utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, utofu_stadd_t lcl_stadd, utofu_stadd_t rmt_stadd,
                   size_t length, uint64_t edata, unsigned long int flags, size_t mtu, size_t gap, void *cbdata);

/** num_blocks gets of length bytes each, the next one stride bytes on at both sides; notices for each of them. §3.7.1.9. */
int utofu_get_stride (utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, utofu_stadd_t lcl_stadd,
                      utofu_stadd_t rmt_stadd, size_t length, size_t stride, size_t num_blocks, uint64_t edata,
                      unsigned long int flags, void *cbdata);

/** utofu_get_stride() with packet size and gap. §3.7.1.10. */
int utofu_get_stride_gap (utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, utofu_stadd_t lcl_stadd,
                          utofu_stadd_t rmt_stadd, size_t length, size_t stride, size_t num_blocks, uint64_t edata,
                          unsigned long int flags, size_t mtu, size_t gap, void *cbdata);

/** Changes 4 bytes at rmt_stadd, a multiple of 4, atomically; the local MRQ notice has the old value. §3.7.1.11. */
int utofu_armw4 (utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, enum utofu_armw_op armw_op, uint32_t op_value,
                 utofu_stadd_t rmt_stadd, uint64_t edata, unsigned long int flags, void *cbdata);

/** The same for 8 bytes at a multiple of 8. §3.7.1.12. */
int utofu_armw8 (utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, enum utofu_armw_op armw_op, uint64_t op_value,
                 utofu_stadd_t rmt_stadd, uint64_t edata, unsigned long int flags, void *cbdata);

/** Replaces 4 bytes that equal old_value by new_value, atomically; the local MRQ notice has the previous value. §3.7.1.13. */
int utofu_cswap4 (utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, uint32_t old_value, uint32_t new_value,
                  utofu_stadd_t rmt_stadd, uint64_t edata, unsigned long int flags, void *cbdata);

/** The same for 8 bytes at a multiple of 8. §3.7.1.14. */
int utofu_cswap8 (utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, uint64_t old_value, uint64_t new_value,
                  utofu_stadd_t rmt_stadd, uint64_t edata, unsigned long int flags, void *cbdata);

/** A request without effect, for session mode. No MRQ notice. §3.7.1.15, §2.2.6. */
int utofu_nop (utofu_vcq_hdl_t vcq_hdl, unsigned long int flags, void *cbdata);

/* ---------------------------------------------------------------- one-sided communication: descriptors (§3.7.2, §3.7.3)
 * Each writes to desc the request that the function of the same name would start, and sets *desc_size to its length. desc is aligned
 * to 8 bytes and has room for max_toq_desc_size bytes (times num_blocks with a stride).
 */

/** §3.7.2.1. */
int utofu_prepare_put (utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, utofu_stadd_t lcl_stadd,
                       utofu_stadd_t rmt_stadd, size_t length, uint64_t edata, unsigned long int flags, void *desc,
                       size_t *desc_size);

/** §3.7.2.2. */
int utofu_prepare_put_gap (utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, utofu_stadd_t lcl_stadd,
                           utofu_stadd_t rmt_stadd, size_t length, uint64_t edata, unsigned long int flags, size_t mtu,
                           size_t gap, void *desc, size_t *desc_size);

/** §3.7.2.3. */
int utofu_prepare_put_stride (utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, utofu_stadd_t lcl_stadd,
                              utofu_stadd_t rmt_stadd, size_t length, size_t stride, size_t num_blocks, uint64_t edata,
                              unsigned long int flags, void *desc, size_t *desc_size);

/** §3.7.2.4. */
int utofu_prepare_put_stride_gap (utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, utofu_stadd_t lcl_stadd,
                                  utofu_stadd_t rmt_stadd, size_t length, size_t stride, size_t num_blocks,
                                  uint64_t edata, unsigned long int flags, size_t mtu, size_t gap, void *desc,
                                  size_t *desc_size);

/** The data are copied into the descriptor. §3.7.2.5. */
int utofu_prepare_put_piggyback (utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, void *lcl_data,
                                 utofu_stadd_t rmt_stadd, size_t length, uint64_t edata, unsigned long int flags,
                                 void *desc, size_t *desc_size);

/** §3.7.2.6. */
int utofu_prepare_put_piggyback8 (utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, uint64_t lcl_data,
                                  utofu_stadd_t rmt_stadd, size_t length, uint64_t edata, unsigned long int flags,
                                  void *desc, size_t *desc_size);

/** §3.7.2.7. */
int utofu_prepare_get (utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, utofu_stadd_t lcl_stadd,
                       utofu_stadd_t rmt_stadd, size_t length, uint64_t edata, unsigned long int flags, void *desc,
                       size_t *desc_size);

/** §3.7.2.8. */
int utofu_prepare_get_gap (utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, utofu_stadd_t lcl_stadd,
                           utofu_stadd_t rmt_stadd, size_t length, uint64_t edata, unsigned long int flags, size_t mtu,
                           size_t gap, void *desc, size_t *desc_size);

/** §3.7.2.9. */
int utofu_prepare_get_stride (utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, utofu_stadd_t lcl_stadd,
                              utofu_stadd_t rmt_stadd, size_t length, size_t stride, size_t num_blocks, uint64_t edata,
                              unsigned long int flags, void *desc, size_t *desc_size);

/** §3.7.2.10. */
int utofu_prepare_get_stride_gap (utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, utofu_stadd_t lcl_stadd,
                                  utofu_stadd_t rmt_stadd, size_t length, size_t stride, size_t num_blocks,
                                  uint64_t edata, unsigned long int flags, size_t mtu, size_t gap, void *desc,
                                  size_t *desc_size);

/** §3.7.2.11. */
int utofu_prepare_armw4 (utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, enum utofu_armw_op armw_op,
                         uint32_t op_value, utofu_stadd_t rmt_stadd, uint64_t edata, unsigned long int flags,
                         void *desc, size_t *desc_size);

/** §3.7.2.12. */
int utofu_prepare_armw8 (utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, enum utofu_armw_op armw_op,
                         uint64_t op_value, utofu_stadd_t rmt_stadd, uint64_t edata, unsigned long int flags,
                         void *desc, size_t *desc_size);

/** §3.7.2.13. */
int utofu_prepare_cswap4 (utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, uint32_t old_value, uint32_t new_value,
                          utofu_stadd_t rmt_stadd, uint64_t edata, unsigned long int flags, void *desc,
                          size_t *desc_size);

/** §3.7.2.14. */
int utofu_prepare_cswap8 (utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, uint64_t old_value, uint64_t new_value,
                          utofu_stadd_t rmt_stadd, uint64_t edata, unsigned long int flags, void *desc,
                          size_t *desc_size);

/** §3.7.2.15. */
int utofu_prepare_nop (utofu_vcq_hdl_t vcq_hdl, unsigned long int flags, void *desc, size_t *desc_size);

/**
 * Starts the requests of one or more contiguous descriptors, prepared for this VCQ; all get the same cbdata. Also starts delayed
 * requests; with desc_size 0 only these. §3.7.3.1. Errors: BUSY.
 */
int utofu_post_toq (utofu_vcq_hdl_t vcq_hdl, void *desc, size_t desc_size, void *cbdata);

/* ---------------------------------------------------------------- one-sided communication: completion (§3.7.4, §3.7.5) */

/**
 * Takes the next notice, in the order of the requests. Requests with UTOFU_ONESIDED_FLAG_TCQ_NOTICE and failed requests have notices. Sets
 * *cbdata to the cbdata of the request. §3.7.4.1. Errors: NOT_FOUND (nothing there), TCQ_* (the request failed).
 */
int utofu_poll_tcq (utofu_vcq_hdl_t vcq_hdl, unsigned long int flags, void **cbdata);

/**
 * Takes the next notice of a completion, by this process or by a peer, and copies it to *notice. §3.7.4.2.
 * Errors: NOT_FOUND (nothing there), MRQ_* (the request in *notice failed).
 */
int utofu_poll_mrq (utofu_vcq_hdl_t vcq_hdl, unsigned long int flags, struct utofu_mrq_notice *notice);

/** Sets *count to the requests of the CQ that are not known to be sent. §3.7.5.1. */
int utofu_query_num_unread_tcq (utofu_vcq_hdl_t vcq_hdl, size_t *count);

/** Sets *count to the MRQ notices that wait. Not in the guide. */
int utofu_query_num_unread_mrq (utofu_vcq_hdl_t vcq_hdl, size_t *count);

/* ---------------------------------------------------------------- barrier communication (§3.8)
 * vbg_id is the start/end gate, which names the circuit. All processes of a circuit start the same operation; one at a time, found
 * complete by the poll of the same name. Errors when starting: BUSY (one is in progress). Errors of the polls: NOT_COMPLETED, BUSY
 * (none was started), BARRIER_MISMATCH, BARRIER_OTHER.
 */

/** Operations of reductions. §3.8.3.1, table 2.3. */
enum utofu_reduce_op
{
  UTOFU_REDUCE_OP_BARRIER = 1, /* none */
  UTOFU_REDUCE_OP_BAND = 2,
  UTOFU_REDUCE_OP_BOR = 3,
  UTOFU_REDUCE_OP_BXOR = 4,
  UTOFU_REDUCE_OP_MAX = 5,
  UTOFU_REDUCE_OP_MAXLOC = 6, /* pairs: the largest first element with its second; if equal, the smallest second */
  UTOFU_REDUCE_OP_SUM = 7,
  UTOFU_REDUCE_OP_BFPSUM = 8 /* type double; the result does not depend on the order */
};

/** Starts a barrier. §3.8.1.1. */
int utofu_barrier (utofu_vbg_id_t vbg_id, unsigned long int flags);

/** Starts a reduction of data[num_data], at most max_uint64_reduction, by any operation on uint64_t. §3.8.1.2. */
int utofu_reduce_uint64 (utofu_vbg_id_t vbg_id, enum utofu_reduce_op op, uint64_t data[], size_t num_data,
                         unsigned long int flags);

/** Starts a reduction of data[num_data], at most max_double_reduction, by UTOFU_REDUCE_OP_BFPSUM. §3.8.1.3. */
int utofu_reduce_double (utofu_vbg_id_t vbg_id, enum utofu_reduce_op op, double data[], size_t num_data,
                         unsigned long int flags);

/** Tells whether the barrier is complete: every process has started it. §3.8.2.1. */
int utofu_poll_barrier (utofu_vbg_id_t vbg_id, unsigned long int flags);

/** Tells whether the reduction is complete, and copies the result, the same for all, to data[num_data] if so. §3.8.2.2. */
int utofu_poll_reduce_uint64 (utofu_vbg_id_t vbg_id, unsigned long int flags, uint64_t data[]);

/** The same for double. §3.8.2.3. */
int utofu_poll_reduce_double (utofu_vbg_id_t vbg_id, unsigned long int flags, double data[]);

/* ---------------------------------------------------------------- the system (§3.9) */

/** Version of the interconnect: 3.0. §3.9.1.1, table 6.1. */
void utofu_query_tofu_version (int *major_ver, int *minor_ver);

/** Version of the library. §3.9.1.2. */
void utofu_query_utofu_version (int *major_ver, int *minor_ver);

/** Sets coords[6] to the coordinates of this node. §3.9.2.1. */
int utofu_query_my_coords (uint8_t coords[]);

/**
 * Writes a line of text to message: the function that has returned the last error in this thread, and the error. message has room for
 * 256 bytes. NOT_FOUND, NOT_COMPLETED, NOT_PROCESSED and BUSY do not count. Neither the guide nor the systems' header has this function:
 * programs declare it themselves, with this type (the function writes to message in spite of const).
 */
void utofu_get_last_error (const char *message);

#ifdef __cplusplus
}
#endif

#endif
