! A ring in Fortran: numbers pass from each process to the next one by notified writes. At the end a reduction adds all numbers.
!
! ring [ROUNDS]
program ring
  use gaspi
  use gaspi_ext
  implicit none

  integer(gaspi_segment_id_t), parameter :: segment = 0
  integer(gaspi_queue_id_t), parameter :: queue = 0
  integer(gaspi_size_t), parameter :: word = 8
  integer(gaspi_rank_t) :: rank, processes, right
  integer(c_long), pointer :: numbers(:)
  integer(c_long), target :: mine(1), all(1)
  integer(c_long) :: expected
  integer(gaspi_notification_id_t) :: first
  integer(gaspi_notification_t) :: round_seen
  integer :: rounds, round, slots, slot
  type(c_ptr) :: memory

  rounds = 100
  call read_rounds()
  call check(gaspi_proc_init(GASPI_BLOCK), "gaspi_proc_init")
  call check(gaspi_proc_rank(rank), "gaspi_proc_rank")
  call check(gaspi_proc_num(processes), "gaspi_proc_num")
  right = int(modulo(rank + 1, int(processes)), gaspi_rank_t)

  ! numbers(1) is sent; the other slots receive in turn. The left neighbour is less than `slots` rounds ahead.
  slots = processes
  call check(gaspi_segment_create(segment, (1 + slots) * word, GASPI_GROUP_ALL, GASPI_BLOCK, GASPI_MEM_INITIALIZED), &
      "gaspi_segment_create")
  call check(gaspi_segment_ptr(segment, memory), "gaspi_segment_ptr")
  call c_f_pointer(memory, numbers, [1 + slots])

  mine = 0
  numbers(1) = rank
  do round = 1, rounds
    slot = modulo(round, slots)
    call check(gaspi_write_notify(segment, 0_gaspi_offset_t, right, segment, (1 + slot) * word, word, slot, round, queue, &
        GASPI_BLOCK), "gaspi_write_notify")
    call check(gaspi_notify_waitsome(segment, slot, 1, first, GASPI_BLOCK), "gaspi_notify_waitsome")
    call check(gaspi_notify_reset(segment, first, round_seen), "gaspi_notify_reset")
    if (round_seen /= round) call fail("a notification of another round")
    call check(gaspi_wait(queue, GASPI_BLOCK), "gaspi_wait")
    numbers(1) = numbers(2 + slot) + 1
    mine = mine + numbers(1)
  end do

  call check(gaspi_allreduce(c_loc(mine), c_loc(all), 1, GASPI_OP_SUM, GASPI_TYPE_LONG, GASPI_GROUP_ALL, GASPI_BLOCK), &
      "gaspi_allreduce")
  ! In round r, the numbers are all ranks plus r.
  expected = int(processes, c_long) * (processes - 1) / 2 * rounds + int(processes, c_long) * rounds * (rounds + 1) / 2
  if (all(1) /= expected) call fail("the sum is wrong")
  if (rank == 0) write(*, '(a,i0,a,i0,a)') "ring: ", rounds, " rounds of ", processes, " processes: right"

  call check(gaspi_barrier(GASPI_GROUP_ALL, GASPI_BLOCK), "gaspi_barrier")
  call check(gaspi_proc_term(GASPI_BLOCK), "gaspi_proc_term")

contains

  ! ERROR STOP would print a backtrace.
  subroutine stop_with(status)
    integer(c_int), intent(in) :: status
    interface
      subroutine c_exit(status) bind(C, name="exit")
        import
        integer(c_int), value :: status
      end subroutine c_exit
    end interface
    flush(6)
    call c_exit(status)
  end subroutine stop_with

  subroutine read_rounds()
    character(len=20) :: argument
    integer :: status
    if (command_argument_count() == 0) return
    call get_command_argument(1, argument)
    read(argument, *, iostat=status) rounds
    if (status /= 0 .or. rounds < 1 .or. rounds > 100000 .or. command_argument_count() > 1) then
      write(*, '(a)') "usage: ring [ROUNDS], from 1 to 100000"
      call stop_with(2_c_int)
    end if
  end subroutine read_rounds

  subroutine check(code, call)
    integer(gaspi_return_t), intent(in) :: code
    character(len=*), intent(in) :: call
    character(kind=c_char, len=100) :: text
    if (code == GASPI_SUCCESS) return
    if (gaspi_print_error(code, text) == GASPI_SUCCESS) text = text(:index(text, c_null_char) - 1)
    call fail(call // ": " // trim(text))
  end subroutine check

  subroutine fail(why)
    character(len=*), intent(in) :: why
    write(*, '(2a)') "ring: ", why
    call stop_with(1_c_int)
  end subroutine fail
end program ring
