! GASPI 17.1 for Fortran 2003: the modules that programs use. The interfaces are those of the text of GASPI 17.1; what each
! procedure does, and its errors, is in GASPI.h and GASPI_Ext.h. Compile it once, and link it with -lGPI2:
!
!   gfortran -c PREFIX/include/gaspi.f90
!   gfortran program.f90 gaspi.o -LPREFIX/lib -lGPI2 -o program

module gaspi_types
  use, intrinsic :: iso_c_binding
  implicit none
  public

  integer, parameter :: gaspi_char = c_signed_char
  integer, parameter :: gaspi_uchar = c_signed_char
  integer, parameter :: gaspi_short = c_short
  integer, parameter :: gaspi_ushort = c_short
  integer, parameter :: gaspi_int = c_int
  integer, parameter :: gaspi_uint = c_int
  integer, parameter :: gaspi_long = c_long
  integer, parameter :: gaspi_ulong = c_long
  integer, parameter :: gaspi_float = c_float
  integer, parameter :: gaspi_double = c_double

  ! Fortran has no unsigned numbers. These kinds are as wide as the unsigned types of C; what is above the largest signed number is negative here: segment
  ! 200 is -56, rank 40000 is -25536. iand(int(segment), 255) and iand(int(rank), 65535) give what C has; 200 - 256 and 40000 - 65536 lead back. So
  ! results are not compared by < or >, and a loop over names above 127 counts in a wider integer.
  integer, parameter :: gaspi_return_t = c_int
  integer, parameter :: gaspi_timeout_t = c_long
  integer, parameter :: gaspi_rank_t = c_short
  integer, parameter :: gaspi_group_t = c_signed_char
  integer, parameter :: gaspi_number_t = c_int
  integer, parameter :: gaspi_size_t = c_long
  integer, parameter :: gaspi_alloc_t = c_int
  integer, parameter :: gaspi_segment_id_t = c_signed_char
  integer, parameter :: gaspi_offset_t = c_long
  integer, parameter :: gaspi_memory_description_t = c_int
  integer, parameter :: gaspi_queue_id_t = c_signed_char
  integer, parameter :: gaspi_notification_t = c_int
  integer, parameter :: gaspi_notification_id_t = c_int
  integer, parameter :: gaspi_atomic_value_t = c_long
  integer, parameter :: gaspi_network_t = c_int
  integer, parameter :: gaspi_operation_t = c_int
  integer, parameter :: gaspi_datatype_t = c_int
  integer, parameter :: gaspi_state_t = c_int
  integer, parameter :: gaspi_topology_t = c_int
  integer, parameter :: gaspi_statistic_counter_t = c_int
  integer, parameter :: gaspi_statistic_argument_t = c_int
  integer, parameter :: gaspi_time_t = c_float
  integer, parameter :: gaspi_cycles_t = c_long

  integer(gaspi_timeout_t), parameter :: GASPI_BLOCK = -1
  integer(gaspi_timeout_t), parameter :: GASPI_TEST = 0
  integer(gaspi_group_t), parameter :: GASPI_GROUP_ALL = 0

  integer(gaspi_return_t), parameter :: GASPI_ERROR = -1
  integer(gaspi_return_t), parameter :: GASPI_SUCCESS = 0
  integer(gaspi_return_t), parameter :: GASPI_TIMEOUT = 1
  integer(gaspi_return_t), parameter :: GASPI_ERR_EMFILE = 2
  integer(gaspi_return_t), parameter :: GASPI_ERR_ENV = 3
  integer(gaspi_return_t), parameter :: GASPI_ERR_SN_PORT = 4
  integer(gaspi_return_t), parameter :: GASPI_ERR_CONFIG = 5
  integer(gaspi_return_t), parameter :: GASPI_ERR_NOINIT = 6
  integer(gaspi_return_t), parameter :: GASPI_ERR_INITED = 7
  integer(gaspi_return_t), parameter :: GASPI_ERR_NULLPTR = 8
  integer(gaspi_return_t), parameter :: GASPI_ERR_INV_SEGSIZE = 9
  integer(gaspi_return_t), parameter :: GASPI_ERR_INV_SEG = 10
  integer(gaspi_return_t), parameter :: GASPI_ERR_INV_GROUP = 11
  integer(gaspi_return_t), parameter :: GASPI_ERR_INV_RANK = 12
  integer(gaspi_return_t), parameter :: GASPI_ERR_INV_QUEUE = 13
  integer(gaspi_return_t), parameter :: GASPI_ERR_INV_LOC_OFF = 14
  integer(gaspi_return_t), parameter :: GASPI_ERR_INV_REM_OFF = 15
  integer(gaspi_return_t), parameter :: GASPI_ERR_INV_COMMSIZE = 16
  integer(gaspi_return_t), parameter :: GASPI_ERR_INV_NOTIF_VAL = 17
  integer(gaspi_return_t), parameter :: GASPI_ERR_INV_NOTIF_ID = 18
  integer(gaspi_return_t), parameter :: GASPI_ERR_INV_NUM = 19
  integer(gaspi_return_t), parameter :: GASPI_ERR_INV_SIZE = 20
  integer(gaspi_return_t), parameter :: GASPI_ERR_MANY_SEG = 21
  integer(gaspi_return_t), parameter :: GASPI_ERR_MANY_GRP = 22
  integer(gaspi_return_t), parameter :: GASPI_QUEUE_FULL = 23
  integer(gaspi_return_t), parameter :: GASPI_ERR_UNALIGN_OFF = 24
  integer(gaspi_return_t), parameter :: GASPI_ERR_ACTIVE_COLL = 25
  integer(gaspi_return_t), parameter :: GASPI_ERR_DEVICE = 26
  integer(gaspi_return_t), parameter :: GASPI_ERR_SN = 27
  integer(gaspi_return_t), parameter :: GASPI_ERR_MEMALLOC = 28

  integer(gaspi_operation_t), parameter :: GASPI_OP_MIN = 0
  integer(gaspi_operation_t), parameter :: GASPI_OP_MAX = 1
  integer(gaspi_operation_t), parameter :: GASPI_OP_SUM = 2

  integer(gaspi_datatype_t), parameter :: GASPI_TYPE_INT = 0
  integer(gaspi_datatype_t), parameter :: GASPI_TYPE_UINT = 1
  integer(gaspi_datatype_t), parameter :: GASPI_TYPE_FLOAT = 2
  integer(gaspi_datatype_t), parameter :: GASPI_TYPE_DOUBLE = 3
  integer(gaspi_datatype_t), parameter :: GASPI_TYPE_LONG = 4
  integer(gaspi_datatype_t), parameter :: GASPI_TYPE_ULONG = 5

  integer(gaspi_network_t), parameter :: GASPI_IB = 0
  integer(gaspi_network_t), parameter :: GASPI_ROCE = 1
  integer(gaspi_network_t), parameter :: GASPI_ETHERNET = 2
  integer(gaspi_network_t), parameter :: GASPI_GEMINI = 3
  integer(gaspi_network_t), parameter :: GASPI_ARIES = 4
  integer(gaspi_network_t), parameter :: GASPI_OFI = 5

  integer(gaspi_alloc_t), parameter :: GASPI_MEM_UNINITIALIZED = 0
  integer(gaspi_alloc_t), parameter :: GASPI_MEM_INITIALIZED = 1
  integer(gaspi_alloc_t), parameter :: GASPI_ALLOC_DEFAULT = 0

  integer(gaspi_state_t), parameter :: GASPI_STATE_HEALTHY = 0
  integer(gaspi_state_t), parameter :: GASPI_STATE_CORRUPT = 1

  integer(gaspi_statistic_argument_t), parameter :: GASPI_STATISTIC_ARGUMENT_NONE = 0
  integer(gaspi_statistic_argument_t), parameter :: GASPI_STATISTIC_ARGUMENT_RANK = 1

  integer(gaspi_topology_t), parameter :: GASPI_TOPOLOGY_NONE = 0
  integer(gaspi_topology_t), parameter :: GASPI_TOPOLOGY_STATIC = 1
  integer(gaspi_topology_t), parameter :: GASPI_TOPOLOGY_DYNAMIC = 2

  type, bind(C) :: gaspi_dev_config_t
    integer(gaspi_network_t) :: network_type
    integer(gaspi_int) :: ib_netdev_id
    integer(gaspi_uint) :: ib_mtu
    integer(gaspi_uint) :: ib_port_check
    integer(gaspi_uint) :: tcp_port
    integer(gaspi_uint) :: ofi_use_shm
    integer(gaspi_uint) :: ofi_provider_info
    integer(gaspi_uint) :: ofi_progress_auto
  end type gaspi_dev_config_t

  type, bind(C) :: gaspi_config_t
    integer(gaspi_uint) :: logger
    integer(gaspi_uint) :: sn_port
    integer(gaspi_uint) :: net_info
    integer(gaspi_uint) :: user_net
    integer(gaspi_int) :: sn_persistent
    integer(gaspi_timeout_t) :: sn_timeout
    type(gaspi_dev_config_t) :: dev_config
    integer(gaspi_network_t) :: network
    integer(gaspi_number_t) :: queue_size_max
    integer(gaspi_number_t) :: queue_num
    integer(gaspi_number_t) :: group_max
    integer(gaspi_number_t) :: segment_max
    integer(gaspi_size_t) :: transfer_size_max
    integer(gaspi_number_t) :: notification_num
    integer(gaspi_number_t) :: passive_queue_size_max
    integer(gaspi_number_t) :: passive_transfer_size_max
    integer(gaspi_size_t) :: allreduce_buf_size
    integer(gaspi_number_t) :: allreduce_elem_max
    integer(gaspi_number_t) :: rw_list_elem_max
    integer(gaspi_topology_t) :: build_infrastructure
    type(c_ptr) :: user_defined
  end type gaspi_config_t
end module gaspi_types

module gaspi
  use gaspi_types
  implicit none
  public

  interface
    function gaspi_config_get(config) &
        result(res) bind(C, name="gaspi_config_get")
      import
      type(gaspi_config_t), intent(out) :: config
      integer(gaspi_return_t) :: res
    end function gaspi_config_get

    function gaspi_config_set(new_config) &
        result(res) bind(C, name="gaspi_config_set")
      import
      type(gaspi_config_t), value :: new_config
      integer(gaspi_return_t) :: res
    end function gaspi_config_set

    function gaspi_proc_init(timeout_ms) &
        result(res) bind(C, name="gaspi_proc_init")
      import
      integer(gaspi_timeout_t), value :: timeout_ms
      integer(gaspi_return_t) :: res
    end function gaspi_proc_init

    function gaspi_proc_num(proc_num) &
        result(res) bind(C, name="gaspi_proc_num")
      import
      integer(gaspi_rank_t), intent(out) :: proc_num
      integer(gaspi_return_t) :: res
    end function gaspi_proc_num

    function gaspi_proc_rank(rank) &
        result(res) bind(C, name="gaspi_proc_rank")
      import
      integer(gaspi_rank_t), intent(out) :: rank
      integer(gaspi_return_t) :: res
    end function gaspi_proc_rank

    function gaspi_proc_term(timeout_ms) &
        result(res) bind(C, name="gaspi_proc_term")
      import
      integer(gaspi_timeout_t), value :: timeout_ms
      integer(gaspi_return_t) :: res
    end function gaspi_proc_term

    function gaspi_proc_kill(rank, timeout_ms) &
        result(res) bind(C, name="gaspi_proc_kill")
      import
      integer(gaspi_rank_t), value :: rank
      integer(gaspi_timeout_t), value :: timeout_ms
      integer(gaspi_return_t) :: res
    end function gaspi_proc_kill

    function gaspi_connect(rank, timeout_ms) &
        result(res) bind(C, name="gaspi_connect")
      import
      integer(gaspi_rank_t), value :: rank
      integer(gaspi_timeout_t), value :: timeout_ms
      integer(gaspi_return_t) :: res
    end function gaspi_connect

    function gaspi_disconnect(rank, timeout_ms) &
        result(res) bind(C, name="gaspi_disconnect")
      import
      integer(gaspi_rank_t), value :: rank
      integer(gaspi_timeout_t), value :: timeout_ms
      integer(gaspi_return_t) :: res
    end function gaspi_disconnect

    function gaspi_state_vec_get(state_vector) &
        result(res) bind(C, name="gaspi_state_vec_get")
      import
      type(c_ptr), value :: state_vector
      integer(gaspi_return_t) :: res
    end function gaspi_state_vec_get

    function gaspi_group_create(group) &
        result(res) bind(C, name="gaspi_group_create")
      import
      integer(gaspi_group_t), intent(out) :: group
      integer(gaspi_return_t) :: res
    end function gaspi_group_create

    function gaspi_group_add(group, rank) &
        result(res) bind(C, name="gaspi_group_add")
      import
      integer(gaspi_group_t), value :: group
      integer(gaspi_rank_t), value :: rank
      integer(gaspi_return_t) :: res
    end function gaspi_group_add

    function gaspi_group_commit(group, timeout_ms) &
        result(res) bind(C, name="gaspi_group_commit")
      import
      integer(gaspi_group_t), value :: group
      integer(gaspi_timeout_t), value :: timeout_ms
      integer(gaspi_return_t) :: res
    end function gaspi_group_commit

    function gaspi_group_delete(group) &
        result(res) bind(C, name="gaspi_group_delete")
      import
      integer(gaspi_group_t), value :: group
      integer(gaspi_return_t) :: res
    end function gaspi_group_delete

    function gaspi_group_num(group_num) &
        result(res) bind(C, name="gaspi_group_num")
      import
      integer(gaspi_number_t), intent(out) :: group_num
      integer(gaspi_return_t) :: res
    end function gaspi_group_num

    function gaspi_group_size(group, group_size) &
        result(res) bind(C, name="gaspi_group_size")
      import
      integer(gaspi_group_t), value :: group
      integer(gaspi_number_t), intent(out) :: group_size
      integer(gaspi_return_t) :: res
    end function gaspi_group_size

    function gaspi_group_ranks(group, group_ranks) &
        result(res) bind(C, name="gaspi_group_ranks")
      import
      integer(gaspi_group_t), value :: group
      type(c_ptr), value :: group_ranks
      integer(gaspi_return_t) :: res
    end function gaspi_group_ranks

    function gaspi_segment_alloc(segment_id, size, alloc_policy) &
        result(res) bind(C, name="gaspi_segment_alloc")
      import
      integer(gaspi_segment_id_t), value :: segment_id
      integer(gaspi_size_t), value :: size
      integer(gaspi_alloc_t), value :: alloc_policy
      integer(gaspi_return_t) :: res
    end function gaspi_segment_alloc

    function gaspi_segment_register(segment_id, rank, timeout_ms) &
        result(res) bind(C, name="gaspi_segment_register")
      import
      integer(gaspi_segment_id_t), value :: segment_id
      integer(gaspi_rank_t), value :: rank
      integer(gaspi_timeout_t), value :: timeout_ms
      integer(gaspi_return_t) :: res
    end function gaspi_segment_register

    function gaspi_segment_create(segment_id, size, group, timeout_ms, alloc_policy) &
        result(res) bind(C, name="gaspi_segment_create")
      import
      integer(gaspi_segment_id_t), value :: segment_id
      integer(gaspi_size_t), value :: size
      integer(gaspi_group_t), value :: group
      integer(gaspi_timeout_t), value :: timeout_ms
      integer(gaspi_alloc_t), value :: alloc_policy
      integer(gaspi_return_t) :: res
    end function gaspi_segment_create

    function gaspi_segment_bind(segment_id, pointer, size, memory_description) &
        result(res) bind(C, name="gaspi_segment_bind")
      import
      integer(gaspi_segment_id_t), value :: segment_id
      type(c_ptr), value :: pointer
      integer(gaspi_size_t), value :: size
      integer(gaspi_memory_description_t), value :: memory_description
      integer(gaspi_return_t) :: res
    end function gaspi_segment_bind

    function gaspi_segment_use(segment_id, pointer, size, group, timeout, memory_description) &
        result(res) bind(C, name="gaspi_segment_use")
      import
      integer(gaspi_segment_id_t), value :: segment_id
      type(c_ptr), value :: pointer
      integer(gaspi_size_t), value :: size
      integer(gaspi_group_t), value :: group
      integer(gaspi_timeout_t), value :: timeout
      integer(gaspi_memory_description_t), value :: memory_description
      integer(gaspi_return_t) :: res
    end function gaspi_segment_use

    function gaspi_segment_delete(segment_id) &
        result(res) bind(C, name="gaspi_segment_delete")
      import
      integer(gaspi_segment_id_t), value :: segment_id
      integer(gaspi_return_t) :: res
    end function gaspi_segment_delete

    function gaspi_segment_num(segment_num) &
        result(res) bind(C, name="gaspi_segment_num")
      import
      integer(gaspi_number_t), intent(out) :: segment_num
      integer(gaspi_return_t) :: res
    end function gaspi_segment_num

    function gaspi_segment_list(num, segment_id_list) &
        result(res) bind(C, name="gaspi_segment_list")
      import
      integer(gaspi_number_t), value :: num
      type(c_ptr), value :: segment_id_list
      integer(gaspi_return_t) :: res
    end function gaspi_segment_list

    function gaspi_segment_ptr(segment_id, ptr) &
        result(res) bind(C, name="gaspi_segment_ptr")
      import
      integer(gaspi_segment_id_t), value :: segment_id
      type(c_ptr), intent(out) :: ptr
      integer(gaspi_return_t) :: res
    end function gaspi_segment_ptr

    function gaspi_write(segment_id_local, offset_local, rank, segment_id_remote, &
        offset_remote, size, queue, timeout_ms) &
        result(res) bind(C, name="gaspi_write")
      import
      integer(gaspi_segment_id_t), value :: segment_id_local
      integer(gaspi_offset_t), value :: offset_local
      integer(gaspi_rank_t), value :: rank
      integer(gaspi_segment_id_t), value :: segment_id_remote
      integer(gaspi_offset_t), value :: offset_remote
      integer(gaspi_size_t), value :: size
      integer(gaspi_queue_id_t), value :: queue
      integer(gaspi_timeout_t), value :: timeout_ms
      integer(gaspi_return_t) :: res
    end function gaspi_write

    function gaspi_read(segment_id_local, offset_local, rank, segment_id_remote, offset_remote, &
        size, queue, timeout_ms) &
        result(res) bind(C, name="gaspi_read")
      import
      integer(gaspi_segment_id_t), value :: segment_id_local
      integer(gaspi_offset_t), value :: offset_local
      integer(gaspi_rank_t), value :: rank
      integer(gaspi_segment_id_t), value :: segment_id_remote
      integer(gaspi_offset_t), value :: offset_remote
      integer(gaspi_size_t), value :: size
      integer(gaspi_queue_id_t), value :: queue
      integer(gaspi_timeout_t), value :: timeout_ms
      integer(gaspi_return_t) :: res
    end function gaspi_read

    function gaspi_wait(queue, timeout_ms) &
        result(res) bind(C, name="gaspi_wait")
      import
      integer(gaspi_queue_id_t), value :: queue
      integer(gaspi_timeout_t), value :: timeout_ms
      integer(gaspi_return_t) :: res
    end function gaspi_wait

    function gaspi_notify(segment_id_remote, rank, notification_id, notification_value, queue, &
        timeout_ms) &
        result(res) bind(C, name="gaspi_notify")
      import
      integer(gaspi_segment_id_t), value :: segment_id_remote
      integer(gaspi_rank_t), value :: rank
      integer(gaspi_notification_id_t), value :: notification_id
      integer(gaspi_notification_t), value :: notification_value
      integer(gaspi_queue_id_t), value :: queue
      integer(gaspi_timeout_t), value :: timeout_ms
      integer(gaspi_return_t) :: res
    end function gaspi_notify

    function gaspi_notify_waitsome(segment_id_local, notification_begin, num, first_id, timeout_ms) &
        result(res) bind(C, name="gaspi_notify_waitsome")
      import
      integer(gaspi_segment_id_t), value :: segment_id_local
      integer(gaspi_notification_id_t), value :: notification_begin
      integer(gaspi_number_t), value :: num
      integer(gaspi_notification_id_t), intent(out) :: first_id
      integer(gaspi_timeout_t), value :: timeout_ms
      integer(gaspi_return_t) :: res
    end function gaspi_notify_waitsome

    function gaspi_notify_reset(segment_id_local, notification_id, old_notification_val) &
        result(res) bind(C, name="gaspi_notify_reset")
      import
      integer(gaspi_segment_id_t), value :: segment_id_local
      integer(gaspi_notification_id_t), value :: notification_id
      integer(gaspi_notification_t), intent(out) :: old_notification_val
      integer(gaspi_return_t) :: res
    end function gaspi_notify_reset

    function gaspi_write_notify(segment_id_local, offset_local, rank, segment_id_remote, &
        offset_remote, size, notification_id, notification_value, queue, timeout_ms) &
        result(res) bind(C, name="gaspi_write_notify")
      import
      integer(gaspi_segment_id_t), value :: segment_id_local
      integer(gaspi_offset_t), value :: offset_local
      integer(gaspi_rank_t), value :: rank
      integer(gaspi_segment_id_t), value :: segment_id_remote
      integer(gaspi_offset_t), value :: offset_remote
      integer(gaspi_size_t), value :: size
      integer(gaspi_notification_id_t), value :: notification_id
      integer(gaspi_notification_t), value :: notification_value
      integer(gaspi_queue_id_t), value :: queue
      integer(gaspi_timeout_t), value :: timeout_ms
      integer(gaspi_return_t) :: res
    end function gaspi_write_notify

    function gaspi_write_list(num, segment_id_local, offset_local, rank, segment_id_remote, &
        offset_remote, size, queue, timeout_ms) &
        result(res) bind(C, name="gaspi_write_list")
      import
      integer(gaspi_number_t), value :: num
      type(c_ptr), value :: segment_id_local
      type(c_ptr), value :: offset_local
      integer(gaspi_rank_t), value :: rank
      type(c_ptr), value :: segment_id_remote
      type(c_ptr), value :: offset_remote
      type(c_ptr), value :: size
      integer(gaspi_queue_id_t), value :: queue
      integer(gaspi_timeout_t), value :: timeout_ms
      integer(gaspi_return_t) :: res
    end function gaspi_write_list

    function gaspi_write_list_notify(num, segment_id_local, offset_local, rank, &
        segment_id_remote, offset_remote, size, segment_id_notification, notification_id, &
        notification_value, queue, timeout_ms) &
        result(res) bind(C, name="gaspi_write_list_notify")
      import
      integer(gaspi_number_t), value :: num
      type(c_ptr), value :: segment_id_local
      type(c_ptr), value :: offset_local
      integer(gaspi_rank_t), value :: rank
      type(c_ptr), value :: segment_id_remote
      type(c_ptr), value :: offset_remote
      type(c_ptr), value :: size
      integer(gaspi_segment_id_t), value :: segment_id_notification
      integer(gaspi_notification_id_t), value :: notification_id
      integer(gaspi_notification_t), value :: notification_value
      integer(gaspi_queue_id_t), value :: queue
      integer(gaspi_timeout_t), value :: timeout_ms
      integer(gaspi_return_t) :: res
    end function gaspi_write_list_notify

    function gaspi_read_notify(segment_id_local, offset_local, rank, segment_id_remote, &
        offset_remote, size, notification_id, queue, timeout_ms) &
        result(res) bind(C, name="gaspi_read_notify")
      import
      integer(gaspi_segment_id_t), value :: segment_id_local
      integer(gaspi_offset_t), value :: offset_local
      integer(gaspi_rank_t), value :: rank
      integer(gaspi_segment_id_t), value :: segment_id_remote
      integer(gaspi_offset_t), value :: offset_remote
      integer(gaspi_size_t), value :: size
      integer(gaspi_notification_id_t), value :: notification_id
      integer(gaspi_queue_id_t), value :: queue
      integer(gaspi_timeout_t), value :: timeout_ms
      integer(gaspi_return_t) :: res
    end function gaspi_read_notify

    function gaspi_read_list(num, segment_id_local, offset_local, rank, segment_id_remote, &
        offset_remote, size, queue, timeout_ms) &
        result(res) bind(C, name="gaspi_read_list")
      import
      integer(gaspi_number_t), value :: num
      type(c_ptr), value :: segment_id_local
      type(c_ptr), value :: offset_local
      integer(gaspi_rank_t), value :: rank
      type(c_ptr), value :: segment_id_remote
      type(c_ptr), value :: offset_remote
      type(c_ptr), value :: size
      integer(gaspi_queue_id_t), value :: queue
      integer(gaspi_timeout_t), value :: timeout_ms
      integer(gaspi_return_t) :: res
    end function gaspi_read_list

    function gaspi_read_list_notify(num, segment_id_local, offset_local, rank, &
        segment_id_remote, offset_remote, size, notification_id, queue, timeout_ms) &
        result(res) bind(C, name="gaspi_read_list_notify")
      import
      integer(gaspi_number_t), value :: num
      type(c_ptr), value :: segment_id_local
      type(c_ptr), value :: offset_local
      integer(gaspi_rank_t), value :: rank
      type(c_ptr), value :: segment_id_remote
      type(c_ptr), value :: offset_remote
      type(c_ptr), value :: size
      integer(gaspi_notification_id_t), value :: notification_id
      integer(gaspi_queue_id_t), value :: queue
      integer(gaspi_timeout_t), value :: timeout_ms
      integer(gaspi_return_t) :: res
    end function gaspi_read_list_notify

    function gaspi_queue_create(queue, timeout) &
        result(res) bind(C, name="gaspi_queue_create")
      import
      integer(gaspi_queue_id_t), intent(out) :: queue
      integer(gaspi_timeout_t), value :: timeout
      integer(gaspi_return_t) :: res
    end function gaspi_queue_create

    function gaspi_queue_delete(queue) &
        result(res) bind(C, name="gaspi_queue_delete")
      import
      integer(gaspi_queue_id_t), value :: queue
      integer(gaspi_return_t) :: res
    end function gaspi_queue_delete

    function gaspi_queue_size(queue, queue_size) &
        result(res) bind(C, name="gaspi_queue_size")
      import
      integer(gaspi_queue_id_t), value :: queue
      integer(gaspi_number_t), intent(out) :: queue_size
      integer(gaspi_return_t) :: res
    end function gaspi_queue_size

    function gaspi_queue_purge(queue, timeout) &
        result(res) bind(C, name="gaspi_queue_purge")
      import
      integer(gaspi_queue_id_t), value :: queue
      integer(gaspi_timeout_t), value :: timeout
      integer(gaspi_return_t) :: res
    end function gaspi_queue_purge

    function gaspi_passive_send(segment_id_local, offset_local, rank, size, timeout_ms) &
        result(res) bind(C, name="gaspi_passive_send")
      import
      integer(gaspi_segment_id_t), value :: segment_id_local
      integer(gaspi_offset_t), value :: offset_local
      integer(gaspi_rank_t), value :: rank
      integer(gaspi_size_t), value :: size
      integer(gaspi_timeout_t), value :: timeout_ms
      integer(gaspi_return_t) :: res
    end function gaspi_passive_send

    function gaspi_passive_receive(segment_id_local, offset_local, rem_rank, size, timeout_ms) &
        result(res) bind(C, name="gaspi_passive_receive")
      import
      integer(gaspi_segment_id_t), value :: segment_id_local
      integer(gaspi_offset_t), value :: offset_local
      integer(gaspi_rank_t), intent(out) :: rem_rank
      integer(gaspi_size_t), value :: size
      integer(gaspi_timeout_t), value :: timeout_ms
      integer(gaspi_return_t) :: res
    end function gaspi_passive_receive

    function gaspi_passive_queue_purge(timeout) &
        result(res) bind(C, name="gaspi_passive_queue_purge")
      import
      integer(gaspi_timeout_t), value :: timeout
      integer(gaspi_return_t) :: res
    end function gaspi_passive_queue_purge

    function gaspi_atomic_fetch_add(segment_id, offset, rank, val_add, val_old, timeout_ms) &
        result(res) bind(C, name="gaspi_atomic_fetch_add")
      import
      integer(gaspi_segment_id_t), value :: segment_id
      integer(gaspi_offset_t), value :: offset
      integer(gaspi_rank_t), value :: rank
      integer(gaspi_atomic_value_t), value :: val_add
      integer(gaspi_atomic_value_t) :: val_old
      integer(gaspi_timeout_t), value :: timeout_ms
      integer(gaspi_return_t) :: res
    end function gaspi_atomic_fetch_add

    function gaspi_atomic_compare_swap(segment_id, offset, rank, comparator, val_new, val_old, &
        timeout_ms) &
        result(res) bind(C, name="gaspi_atomic_compare_swap")
      import
      integer(gaspi_segment_id_t), value :: segment_id
      integer(gaspi_offset_t), value :: offset
      integer(gaspi_rank_t), value :: rank
      integer(gaspi_atomic_value_t), value :: comparator
      integer(gaspi_atomic_value_t), value :: val_new
      integer(gaspi_atomic_value_t) :: val_old
      integer(gaspi_timeout_t), value :: timeout_ms
      integer(gaspi_return_t) :: res
    end function gaspi_atomic_compare_swap

    function gaspi_barrier(group, timeout_ms) &
        result(res) bind(C, name="gaspi_barrier")
      import
      integer(gaspi_group_t), value :: group
      integer(gaspi_timeout_t), value :: timeout_ms
      integer(gaspi_return_t) :: res
    end function gaspi_barrier

    function gaspi_allreduce(buffer_send, buffer_receive, num, operation, datatype, group, &
        timeout_ms) &
        result(res) bind(C, name="gaspi_allreduce")
      import
      type(c_ptr), value :: buffer_send
      type(c_ptr), value :: buffer_receive
      integer(gaspi_number_t), value :: num
      integer(gaspi_operation_t), value :: operation
      integer(gaspi_datatype_t), value :: datatype
      integer(gaspi_group_t), value :: group
      integer(gaspi_timeout_t), value :: timeout_ms
      integer(gaspi_return_t) :: res
    end function gaspi_allreduce

    function gaspi_allreduce_user(buffer_send, buffer_receive, num, element_size, &
        reduce_operation, reduce_state, group, timeout_ms) &
        result(res) bind(C, name="gaspi_allreduce_user")
      import
      type(c_ptr), value :: buffer_send
      type(c_ptr), value :: buffer_receive
      integer(gaspi_number_t), value :: num
      integer(gaspi_size_t), value :: element_size
      type(c_funptr), value :: reduce_operation
      type(c_ptr), value :: reduce_state
      integer(gaspi_group_t), value :: group
      integer(gaspi_timeout_t), value :: timeout_ms
      integer(gaspi_return_t) :: res
    end function gaspi_allreduce_user

    function gaspi_group_max(group_max) &
        result(res) bind(C, name="gaspi_group_max")
      import
      integer(gaspi_number_t), intent(out) :: group_max
      integer(gaspi_return_t) :: res
    end function gaspi_group_max

    function gaspi_segment_max(segment_max) &
        result(res) bind(C, name="gaspi_segment_max")
      import
      integer(gaspi_number_t), intent(out) :: segment_max
      integer(gaspi_return_t) :: res
    end function gaspi_segment_max

    function gaspi_queue_num(queue_num) &
        result(res) bind(C, name="gaspi_queue_num")
      import
      integer(gaspi_number_t), intent(out) :: queue_num
      integer(gaspi_return_t) :: res
    end function gaspi_queue_num

    function gaspi_queue_size_max(queue_size_max) &
        result(res) bind(C, name="gaspi_queue_size_max")
      import
      integer(gaspi_number_t), intent(out) :: queue_size_max
      integer(gaspi_return_t) :: res
    end function gaspi_queue_size_max

    function gaspi_queue_max(queue_max) &
        result(res) bind(C, name="gaspi_queue_max")
      import
      integer(gaspi_number_t), intent(out) :: queue_max
      integer(gaspi_return_t) :: res
    end function gaspi_queue_max

    function gaspi_transfer_size_max(transfer_size_max) &
        result(res) bind(C, name="gaspi_transfer_size_max")
      import
      integer(gaspi_size_t), intent(out) :: transfer_size_max
      integer(gaspi_return_t) :: res
    end function gaspi_transfer_size_max

    function gaspi_notification_num(notification_num) &
        result(res) bind(C, name="gaspi_notification_num")
      import
      integer(gaspi_number_t), intent(out) :: notification_num
      integer(gaspi_return_t) :: res
    end function gaspi_notification_num

    function gaspi_passive_transfer_size_max(transfer_size_max) &
        result(res) bind(C, name="gaspi_passive_transfer_size_max")
      import
      integer(gaspi_size_t), intent(out) :: transfer_size_max
      integer(gaspi_return_t) :: res
    end function gaspi_passive_transfer_size_max

    function gaspi_atomic_max(max_value) &
        result(res) bind(C, name="gaspi_atomic_max")
      import
      integer(gaspi_atomic_value_t) :: max_value
      integer(gaspi_return_t) :: res
    end function gaspi_atomic_max

    function gaspi_allreduce_buf_size(buf_size) &
        result(res) bind(C, name="gaspi_allreduce_buf_size")
      import
      integer(gaspi_size_t), intent(out) :: buf_size
      integer(gaspi_return_t) :: res
    end function gaspi_allreduce_buf_size

    function gaspi_allreduce_elem_max(elem_max) &
        result(res) bind(C, name="gaspi_allreduce_elem_max")
      import
      integer(gaspi_number_t), intent(out) :: elem_max
      integer(gaspi_return_t) :: res
    end function gaspi_allreduce_elem_max

    function gaspi_network_type(network_type) &
        result(res) bind(C, name="gaspi_network_type")
      import
      integer(gaspi_network_t), intent(out) :: network_type
      integer(gaspi_return_t) :: res
    end function gaspi_network_type

    function gaspi_build_infrastructure(build_infrastructure) &
        result(res) bind(C, name="gaspi_build_infrastructure")
      import
      integer(gaspi_number_t), intent(out) :: build_infrastructure
      integer(gaspi_return_t) :: res
    end function gaspi_build_infrastructure

    function gaspi_version(version) &
        result(res) bind(C, name="gaspi_version")
      import
      real(c_float), intent(out) :: version
      integer(gaspi_return_t) :: res
    end function gaspi_version

    function gaspi_statistic_counter_max(counter_max) &
        result(res) bind(C, name="gaspi_statistic_counter_max")
      import
      integer(gaspi_statistic_counter_t), intent(out) :: counter_max
      integer(gaspi_return_t) :: res
    end function gaspi_statistic_counter_max

    function gaspi_statistic_verbosity_level(verbosity_level_) &
        result(res) bind(C, name="gaspi_statistic_verbosity_level")
      import
      integer(gaspi_number_t), value :: verbosity_level_
      integer(gaspi_return_t) :: res
    end function gaspi_statistic_verbosity_level

    function gaspi_statistic_counter_reset(counter) &
        result(res) bind(C, name="gaspi_statistic_counter_reset")
      import
      integer(gaspi_statistic_counter_t), value :: counter
      integer(gaspi_return_t) :: res
    end function gaspi_statistic_counter_reset

    function gaspi_pcontrol(argument) &
        result(res) bind(C, name="gaspi_pcontrol")
      import
      type(c_ptr), value :: argument
      integer(gaspi_return_t) :: res
    end function gaspi_pcontrol

    function gaspi_time_get(wtime) &
        result(res) bind(C, name="gaspi_time_get")
      import
      real(gaspi_time_t), intent(out) :: wtime
      integer(gaspi_return_t) :: res
    end function gaspi_time_get

    function gaspi_passive_transfer_size_min(transfer_size_min) &
        result(res) bind(C, name="gaspi_passive_transfer_size_min")
      import
      integer(gaspi_size_t), intent(out) :: transfer_size_min
      integer(gaspi_return_t) :: res
    end function gaspi_passive_transfer_size_min

    function gaspi_transfer_size_min(transfer_size_min) &
        result(res) bind(C, name="gaspi_transfer_size_min")
      import
      integer(gaspi_size_t), intent(out) :: transfer_size_min
      integer(gaspi_return_t) :: res
    end function gaspi_transfer_size_min

    function gaspi_statistic_print_counters() &
        result(res) bind(C, name="gaspi_statistic_print_counters")
      import
      integer(gaspi_return_t) :: res
    end function gaspi_statistic_print_counters
  end interface

  ! The text's resolution of the clock, or the time of release 1.6.
  interface gaspi_time_ticks
    function gaspi_time_ticks_now(ticks) result(res) bind(C, name="gaspi_time_ticks")
      import
      integer(gaspi_cycles_t), intent(out) :: ticks
      integer(gaspi_return_t) :: res
    end function gaspi_time_ticks_now

    function gaspi_time_resolution(resolution) result(res) bind(C, name="gaspi_time_resolution")
      import
      real(gaspi_time_t), intent(out) :: resolution
      integer(gaspi_return_t) :: res
    end function gaspi_time_resolution
  end interface gaspi_time_ticks

  ! With a value of 32 bits, as in the text, or of 64.
  interface gaspi_statistic_counter_get
    function gaspi_statistic_counter_get_17(counter, argument, value_arg) &
        result(res) bind(C, name="gaspi_statistic_counter_get_17")
      import
      integer(gaspi_statistic_counter_t), value :: counter
      integer(gaspi_number_t), value :: argument
      integer(gaspi_number_t), intent(out) :: value_arg
      integer(gaspi_return_t) :: res
    end function gaspi_statistic_counter_get_17

    function gaspi_statistic_counter_get_64(counter, argument, value_arg) &
        result(res) bind(C, name="gaspi_statistic_counter_get")
      import
      integer(gaspi_statistic_counter_t), value :: counter
      integer(gaspi_number_t), value :: argument
      integer(gaspi_ulong), intent(out) :: value_arg
      integer(gaspi_return_t) :: res
    end function gaspi_statistic_counter_get_64
  end interface gaspi_statistic_counter_get

  private :: put, c_gaspi_error_message, c_gaspi_statistic_counter_info

  interface
    function c_gaspi_error_message(error_code, text) result(res) bind(C, name="gaspi_error_message")
      import
      integer(gaspi_return_t), value :: error_code
      type(c_ptr), intent(out) :: text
      integer(gaspi_return_t) :: res
    end function c_gaspi_error_message

    function c_gaspi_statistic_counter_info(counter, counter_argument, name, description, level) &
        result(res) bind(C, name="gaspi_statistic_counter_info")
      import
      integer(gaspi_statistic_counter_t), value :: counter
      integer(gaspi_statistic_argument_t), intent(out) :: counter_argument
      type(c_ptr), intent(out) :: name, description
      integer(gaspi_number_t), intent(out) :: level
      integer(gaspi_return_t) :: res
    end function c_gaspi_statistic_counter_info
  end interface

contains

  ! Copies a C string with its end. The texts of the library have at most 99 characters.
  subroutine put(text, into)
    type(c_ptr), intent(in) :: text
    character(kind=c_char), dimension(*), intent(inout) :: into
    character(kind=c_char), dimension(:), pointer :: from
    integer :: at
    call c_f_pointer(text, from, [100])
    do at = 1, 100
      into(at) = from(at)
      if (from(at) == c_null_char) exit
    end do
  end subroutine put

  ! error_message has room for 100 characters; the text ends with c_null_char.
  function gaspi_print_error(error_code, error_message) result(res)
    integer(gaspi_return_t), intent(in) :: error_code
    character(kind=c_char), dimension(*), intent(inout) :: error_message
    integer(gaspi_return_t) :: res
    type(c_ptr) :: text
    res = c_gaspi_error_message(error_code, text)
    if (res == GASPI_SUCCESS) call put(text, error_message)
  end function gaspi_print_error

  ! Name and description have room for 100 characters each; the texts end with c_null_char.
  function gaspi_statistic_counter_info(counter, counter_argument, counter_name, counter_description, &
      verbosity_level) result(res)
    integer(gaspi_statistic_counter_t), intent(in) :: counter
    integer(gaspi_statistic_argument_t), intent(out) :: counter_argument
    character(kind=c_char), dimension(*), intent(inout) :: counter_name
    character(kind=c_char), dimension(*), intent(inout) :: counter_description
    integer(gaspi_number_t), intent(out) :: verbosity_level
    integer(gaspi_return_t) :: res
    type(c_ptr) :: name, description
    res = c_gaspi_statistic_counter_info(counter, counter_argument, name, description, verbosity_level)
    if (res == GASPI_SUCCESS) then
      call put(name, counter_name)
      call put(description, counter_description)
    end if
  end function gaspi_statistic_counter_info
end module gaspi

! Extensions of release 1.6 of the interface (GASPI_Ext.h).
module gaspi_ext
  use gaspi_types
  implicit none
  public

  interface
    function gaspi_initialized(initialized) &
        result(res) bind(C, name="gaspi_initialized")
      import
      integer(gaspi_number_t), intent(out) :: initialized
      integer(gaspi_return_t) :: res
    end function gaspi_initialized

    function gaspi_proc_local_rank(local_rank) &
        result(res) bind(C, name="gaspi_proc_local_rank")
      import
      integer(gaspi_rank_t), intent(out) :: local_rank
      integer(gaspi_return_t) :: res
    end function gaspi_proc_local_rank

    function gaspi_proc_local_num(local_num) &
        result(res) bind(C, name="gaspi_proc_local_num")
      import
      integer(gaspi_rank_t), intent(out) :: local_num
      integer(gaspi_return_t) :: res
    end function gaspi_proc_local_num

    function gaspi_proc_incarnation(incarnation) &
        result(res) bind(C, name="gaspi_proc_incarnation")
      import
      integer(gaspi_number_t), intent(out) :: incarnation
      integer(gaspi_return_t) :: res
    end function gaspi_proc_incarnation

    function gaspi_proc_ping(rank, timeout_ms) &
        result(res) bind(C, name="gaspi_proc_ping")
      import
      integer(gaspi_rank_t), value :: rank
      integer(gaspi_timeout_t), value :: timeout_ms
      integer(gaspi_return_t) :: res
    end function gaspi_proc_ping

    function gaspi_cpu_frequency(cpu_mhz) &
        result(res) bind(C, name="gaspi_cpu_frequency")
      import
      real(gaspi_float), intent(out) :: cpu_mhz
      integer(gaspi_return_t) :: res
    end function gaspi_cpu_frequency

    function gaspi_numa_socket(socket) &
        result(res) bind(C, name="gaspi_numa_socket")
      import
      integer(gaspi_uchar), intent(out) :: socket
      integer(gaspi_return_t) :: res
    end function gaspi_numa_socket

    function gaspi_set_socket_affinity(socket) &
        result(res) bind(C, name="gaspi_set_socket_affinity")
      import
      integer(gaspi_uchar), value :: socket
      integer(gaspi_return_t) :: res
    end function gaspi_set_socket_affinity

    function gaspi_segment_avail_local(segment_id) &
        result(res) bind(C, name="gaspi_segment_avail_local")
      import
      integer(gaspi_segment_id_t), intent(out) :: segment_id
      integer(gaspi_return_t) :: res
    end function gaspi_segment_avail_local

    function gaspi_segment_size(segment_id, rank, size) &
        result(res) bind(C, name="gaspi_segment_size")
      import
      integer(gaspi_segment_id_t), value :: segment_id
      integer(gaspi_rank_t), value :: rank
      integer(gaspi_size_t), intent(out) :: size
      integer(gaspi_return_t) :: res
    end function gaspi_segment_size

    function gaspi_rw_list_elem_max(elem_max) &
        result(res) bind(C, name="gaspi_rw_list_elem_max")
      import
      integer(gaspi_number_t), intent(out) :: elem_max
      integer(gaspi_return_t) :: res
    end function gaspi_rw_list_elem_max

    function gaspi_error_str(error_code) &
        result(res) bind(C, name="gaspi_error_str")
      import
      integer(gaspi_return_t), value :: error_code
      type(c_ptr) :: res
    end function gaspi_error_str

    ! The text is a format of C's printf without arguments, and ends with c_null_char.
    subroutine gaspi_printf(format) bind(C, name="gaspi_printf")
      import
      character(kind=c_char), dimension(*), intent(in) :: format
    end subroutine gaspi_printf

    subroutine gaspi_printf_to(rank, format) bind(C, name="gaspi_printf_to")
      import
      integer(gaspi_rank_t), value :: rank
      character(kind=c_char), dimension(*), intent(in) :: format
    end subroutine gaspi_printf_to

    subroutine gaspi_print_affinity_mask() bind(C, name="gaspi_print_affinity_mask")
    end subroutine gaspi_print_affinity_mask

    subroutine gaspi_delay() bind(C, name="gaspi_delay")
    end subroutine gaspi_delay
  end interface
end module gaspi_ext
