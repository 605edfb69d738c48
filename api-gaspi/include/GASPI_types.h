/*
 * Types and constants of GASPI (GASPI 17.1 §4, §5.2.1, §11.3) for x86-64 Linux.
 * Widths, values and the layout of gaspi_config_t follow release 1.6 of the interface. Types that only the text of GASPI 17.1 has are
 * here too. Sizes and offsets are in bytes, times in milliseconds.
 */
#ifndef UNIPGAS_GASPI_TYPES_H
#define UNIPGAS_GASPI_TYPES_H

#ifdef __cplusplus
extern "C" {
#endif

/* C types under a GASPI name. */
typedef char gaspi_char;
typedef unsigned char gaspi_uchar;
typedef short gaspi_short;
typedef unsigned short gaspi_ushort;
typedef int gaspi_int;
typedef unsigned int gaspi_uint;
typedef long gaspi_long;
typedef unsigned long gaspi_ulong;
typedef float gaspi_float;
typedef double gaspi_double;

/** Rank of a process: 0 to number of processes - 1. */
typedef unsigned short gaspi_rank_t;
/** Name of a group of processes. */
typedef unsigned char gaspi_group_t;
/** Name of a segment, the same on every process that shares it. */
typedef unsigned char gaspi_segment_id_t;
/** Name of a queue of this process. */
typedef unsigned char gaspi_queue_id_t;
/** A count of things. */
typedef unsigned int gaspi_number_t;
/** Bytes from the begin of a segment. */
typedef unsigned long gaspi_offset_t;
/** A length in bytes. */
typedef unsigned long gaspi_size_t;
/** The longest time to wait, in milliseconds; GASPI_BLOCK and GASPI_TEST are special. */
typedef unsigned long gaspi_timeout_t;
/** Operand and result of the global atomics. */
typedef unsigned long gaspi_atomic_value_t;
/** Number of a notification of a segment: 0 to gaspi_notification_num() - 1. */
typedef unsigned int gaspi_notification_id_t;
/** Value of a notification; 0 means no notification. */
typedef unsigned int gaspi_notification_t;
/** A time in milliseconds. */
typedef float gaspi_time_t;
/** A count of clock ticks. */
typedef unsigned long gaspi_cycles_t;
/** Number of a statistic counter (GASPI 17.1 §14.1). */
typedef unsigned int gaspi_statistic_counter_t;
/** Properties of memory that the program provides; 0 is ordinary memory. */
typedef int gaspi_memory_description_t;
/** A text that ends with a zero byte. */
typedef char *gaspi_string_t;
/** Memory of any type. */
typedef void *gaspi_pointer_t;
/** Memory of any type that is only read. */
typedef const void *gaspi_const_pointer_t;
/** A pointer that gaspi_allreduce_user() passes to the callback. */
typedef void *gaspi_reduce_state_t;

/** Waits as long as the operation needs. */
static const gaspi_timeout_t GASPI_BLOCK = 0xffffffffffffffffUL;
/** Does not wait. */
static const gaspi_timeout_t GASPI_TEST = 0UL;
/** The group of all processes. */
static const gaspi_group_t GASPI_GROUP_ALL = 0;

/** Result of each procedure. Only ERROR, SUCCESS, TIMEOUT and QUEUE_FULL are in the text of GASPI 17.1 (§4.2.2). */
typedef enum
{
  GASPI_ERROR = -1,             /**< an error without another code */
  GASPI_SUCCESS = 0,            /**< done */
  GASPI_TIMEOUT = 1,            /**< not yet done: call again with the same arguments to continue */
  GASPI_ERR_EMFILE = 2,         /**< too many open files */
  GASPI_ERR_ENV = 3,            /**< the environment of the job is missing or wrong */
  GASPI_ERR_SN_PORT = 4,        /**< sn_port of the configuration is out of range */
  GASPI_ERR_CONFIG = 5,         /**< a field of the configuration has no permitted value */
  GASPI_ERR_NOINIT = 6,         /**< gaspi_proc_init() was not called */
  GASPI_ERR_INITED = 7,         /**< gaspi_proc_init() was called already */
  GASPI_ERR_NULLPTR = 8,        /**< a pointer is null */
  GASPI_ERR_INV_SEGSIZE = 9,    /**< no permitted size of a segment */
  GASPI_ERR_INV_SEG = 10,       /**< no such segment */
  GASPI_ERR_INV_GROUP = 11,     /**< no such group, or not committed */
  GASPI_ERR_INV_RANK = 12,      /**< no such rank */
  GASPI_ERR_INV_QUEUE = 13,     /**< no such queue */
  GASPI_ERR_INV_LOC_OFF = 14,   /**< the local range leaves its segment */
  GASPI_ERR_INV_REM_OFF = 15,   /**< the remote range leaves its segment */
  GASPI_ERR_INV_COMMSIZE = 16,  /**< no permitted size of a transfer */
  GASPI_ERR_INV_NOTIF_VAL = 17, /**< a notification must not have the value 0 */
  GASPI_ERR_INV_NOTIF_ID = 18,  /**< no such notification */
  GASPI_ERR_INV_NUM = 19,       /**< no permitted count */
  GASPI_ERR_INV_SIZE = 20,      /**< no permitted size */
  GASPI_ERR_MANY_SEG = 21,      /**< no further segment is possible */
  GASPI_ERR_MANY_GRP = 22,      /**< no further group is possible */
  GASPI_QUEUE_FULL = 23,        /**< the queue is full: nothing was posted; call gaspi_wait() or use another queue */
  GASPI_ERR_UNALIGN_OFF = 24,   /**< the offset is not a multiple of 8 bytes */
  GASPI_ERR_ACTIVE_COLL = 25,   /**< another thread runs the same collective operation on this group */
  GASPI_ERR_DEVICE = 26,        /**< the device failed */
  GASPI_ERR_SN = 27,            /**< a peer was not reached during set-up */
  GASPI_ERR_MEMALLOC = 28       /**< out of memory */
} gaspi_return_t;

/** Return codes, one for each rank (GASPI 17.1 §4.1). */
typedef gaspi_return_t *gaspi_returns_t;

/** Predefined reductions (GASPI 17.1 §11.3.2). */
typedef enum
{
  GASPI_OP_MIN = 0,
  GASPI_OP_MAX = 1,
  GASPI_OP_SUM = 2
} gaspi_operation_t;

/** Types of the elements of a predefined reduction (GASPI 17.1 §11.3.3). */
typedef enum
{
  GASPI_TYPE_INT = 0,
  GASPI_TYPE_UINT = 1,
  GASPI_TYPE_FLOAT = 2,
  GASPI_TYPE_DOUBLE = 3,
  GASPI_TYPE_LONG = 4,
  GASPI_TYPE_ULONG = 5
} gaspi_datatype_t;

/** Networks: in the configuration, and the result of gaspi_network_type(). */
typedef enum
{
  GASPI_IB = 0,
  GASPI_ROCE = 1,
  GASPI_ETHERNET = 2,
  GASPI_GEMINI = 3,
  GASPI_ARIES = 4,
  GASPI_OFI = 5
} gaspi_network_t;

/** How the memory of a new segment is prepared (GASPI 17.1 §4.2.4). */
typedef enum
{
  GASPI_MEM_UNINITIALIZED = 0, /**< content not defined */
  GASPI_MEM_INITIALIZED = 1,   /**< zero */
  GASPI_ALLOC_DEFAULT = GASPI_MEM_UNINITIALIZED
} gaspi_alloc_t;

/** Health of a process as this process knows it (GASPI 17.1 §4.2.3). */
typedef enum
{
  GASPI_STATE_HEALTHY = 0,
  GASPI_STATE_CORRUPT = 1
} gaspi_state_t;

/** Health of all processes: one entry for each rank (GASPI 17.1 §5.5). */
typedef gaspi_state_t *gaspi_state_vector_t;

/** Meaning of the argument of a statistic counter (GASPI 17.1 §14.1.2). */
typedef enum
{
  GASPI_STATISTIC_ARGUMENT_NONE = 0, /**< the counter has no argument */
  GASPI_STATISTIC_ARGUMENT_RANK = 1  /**< the argument is a rank */
} gaspi_statistic_argument_t;

/**
 * When connections are made. A number with named values, not an enum: GASPI 17.1 §5.2.1 has gaspi_number_t here,
 * and C++ would not assign a number to an enum.
 */
typedef gaspi_number_t gaspi_topology_t;
enum
{
  GASPI_TOPOLOGY_NONE = 0,   /**< by gaspi_connect() only */
  GASPI_TOPOLOGY_STATIC = 1, /**< all in gaspi_proc_init() */
  GASPI_TOPOLOGY_DYNAMIC = 2 /**< by the first use */
};

/** Settings of network devices. They are stored and can be read back, for any transport. */
typedef struct
{
  gaspi_network_t network_type;
  struct
  {
    struct
    {
      gaspi_int netdev_id;   /**< number of the device, -1: any */
      gaspi_uint mtu;        /**< bytes, 0: the device's own */
      gaspi_uint port_check; /**< 1: look whether the port is active */
    } ib;
    struct
    {
      gaspi_uint port;
    } tcp;
    struct
    {
      gaspi_uint use_shm;
      gaspi_uint provider_info;
      gaspi_uint progress_auto;
    } ofi;
  } params;
} gaspi_dev_config_t;

/** The configuration (GASPI 17.1 §5.2.1). Fields marked (+) are not in the text of GASPI 17.1. */
typedef struct
{
  gaspi_uint logger;         /**< (+) 1: write messages */
  gaspi_uint sn_port;        /**< (+) kept and read back */
  gaspi_uint net_info;       /**< (+) kept and read back */
  gaspi_uint user_net;       /**< (+) kept and read back */
  gaspi_int sn_persistent;   /**< (+) kept and read back */
  gaspi_timeout_t sn_timeout; /**< (+) milliseconds for set-up */

  gaspi_dev_config_t dev_config; /**< (+) */
  gaspi_network_t network;       /**< network to be used */

  gaspi_number_t queue_size_max; /**< open requests in one queue */
  gaspi_number_t queue_num;      /**< queues after gaspi_proc_init() */
  gaspi_number_t group_max;      /**< groups of a process */
  gaspi_number_t segment_max;    /**< segments of a process */

  gaspi_size_t transfer_size_max; /**< bytes of one transfer */

  gaspi_number_t notification_num;          /**< notifications of a segment */
  gaspi_number_t passive_queue_size_max;    /**< passive requests that have run into time-outs */
  gaspi_number_t passive_transfer_size_max; /**< bytes of one passive message, at most 65535 */

  gaspi_size_t allreduce_buf_size;   /**< bytes that gaspi_allreduce_user() can reduce */
  gaspi_number_t allreduce_elem_max; /**< elements that gaspi_allreduce() can reduce */
  gaspi_number_t rw_list_elem_max;   /**< (+) elements of one list operation */

  gaspi_topology_t build_infrastructure; /**< when connections are made */

  void *user_defined; /**< the program's own */
} gaspi_config_t;

/**
 * A reduction of the program: result[i] = operand_one[i] (op) operand_two[i] for num elements of element_size bytes.
 * The operation must be commutative and associative.
 */
typedef gaspi_return_t (*gaspi_reduce_operation_t) (gaspi_pointer_t operand_one, gaspi_pointer_t operand_two,
                                                    gaspi_pointer_t result, gaspi_reduce_state_t state,
                                                    gaspi_number_t num, gaspi_size_t element_size,
                                                    gaspi_timeout_t timeout);

/** The same as GASPI 17.1 §11.4.2 writes it in C: without a count, so it is called for one element at a time. */
typedef gaspi_return_t (*gaspi_reduce_operation_17_t) (gaspi_const_pointer_t operand_one,
                                                       gaspi_const_pointer_t operand_two, gaspi_pointer_t result,
                                                       gaspi_reduce_state_t state, gaspi_timeout_t timeout);

#ifdef __cplusplus
}
#endif

#endif
