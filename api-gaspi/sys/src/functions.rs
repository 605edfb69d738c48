//! The list of all procedures, and the table of them that a program fills from a library.

use std::ffi::{CStr, c_char, c_ushort, c_void};

use crate::types::*;

/// Passes to `$callback!` the declarations of all 216 procedures with a fixed number of parameters: `fn name(parameter: type, ...) -> result;`. A
/// procedure without a result has `()`. The caller needs the types, by `use unipgas_gaspi_sys::*`.
#[macro_export]
macro_rules! gaspi_functions {
    ($callback:ident) => {
        $crate::__with_profiled! { $callback {
            fn gaspi_group_create pgaspi_group_create(group: *mut u8) -> i32;
            fn gaspi_group_add pgaspi_group_add(group: u8, rank: u16) -> i32;
            fn gaspi_group_commit pgaspi_group_commit(group: u8, timeout: u64) -> i32;
            fn gaspi_group_delete pgaspi_group_delete(group: u8) -> i32;
            fn gaspi_group_num pgaspi_group_num(num: *mut u32) -> i32;
            fn gaspi_group_size pgaspi_group_size(group: u8, size: *mut u32) -> i32;
            fn gaspi_group_ranks pgaspi_group_ranks(group: u8, ranks: *mut u16) -> i32;
            fn gaspi_barrier pgaspi_barrier(group: u8, timeout: u64) -> i32;
            fn gaspi_allreduce pgaspi_allreduce(
                send: *const u8, receive: *mut u8, num: u32, operation: u32, datatype: u32, group: u8, timeout: u64,
            ) -> i32;
            fn gaspi_allreduce_user pgaspi_allreduce_user(
                send: *const u8, receive: *mut u8, num: u32, size: u64, operation: Option<gaspi_reduce_operation_t>,
                state: *mut c_void, group: u8, timeout: u64,
            ) -> i32;
            fn gaspi_allreduce_user_17 pgaspi_allreduce_user_17(
                send: *const u8, receive: *mut u8, num: u32, size: u64, operation: Option<gaspi_reduce_operation_17_t>,
                state: *mut c_void, group: u8, timeout: u64,
            ) -> i32;
            fn gaspi_version pgaspi_version(version: *mut f32) -> i32;
            fn gaspi_time_get pgaspi_time_get(time: *mut f32) -> i32;
            fn gaspi_time_resolution pgaspi_time_resolution(resolution: *mut f32) -> i32;
            fn gaspi_time_ticks pgaspi_time_ticks(ticks: *mut u64) -> i32;
            fn gaspi_cpu_frequency pgaspi_cpu_frequency(mhz: *mut f32) -> i32;
            fn gaspi_print_error pgaspi_print_error(code: i32, message: *mut *mut c_char) -> i32;
            fn gaspi_error_message pgaspi_error_message(code: i32, message: *mut *mut c_char) -> i32;
            fn gaspi_pcontrol pgaspi_pcontrol(argument: *mut c_void) -> i32;
            fn gaspi_numa_socket pgaspi_numa_socket(socket: *mut u8) -> i32;
            fn gaspi_set_socket_affinity pgaspi_set_socket_affinity(socket: u8) -> i32;
            fn gaspi_error_str pgaspi_error_str(code: i32) -> *mut c_char;
            fn gaspi_delay pgaspi_delay() -> ();
            fn gaspi_print_affinity_mask pgaspi_print_affinity_mask() -> ();
            fn gaspi_group_max pgaspi_group_max(value: *mut u32) -> i32;
            fn gaspi_segment_max pgaspi_segment_max(value: *mut u32) -> i32;
            fn gaspi_queue_size_max pgaspi_queue_size_max(value: *mut u32) -> i32;
            fn gaspi_transfer_size_max pgaspi_transfer_size_max(value: *mut u64) -> i32;
            fn gaspi_notification_num pgaspi_notification_num(value: *mut u32) -> i32;
            fn gaspi_allreduce_buf_size pgaspi_allreduce_buf_size(value: *mut u64) -> i32;
            fn gaspi_allreduce_elem_max pgaspi_allreduce_elem_max(value: *mut u32) -> i32;
            fn gaspi_rw_list_elem_max pgaspi_rw_list_elem_max(value: *mut u32) -> i32;
            fn gaspi_network_type pgaspi_network_type(value: *mut u32) -> i32;
            fn gaspi_build_infrastructure pgaspi_build_infrastructure(value: *mut u32) -> i32;
            fn gaspi_queue_num pgaspi_queue_num(num: *mut u32) -> i32;
            fn gaspi_queue_max pgaspi_queue_max(max: *mut u32) -> i32;
            fn gaspi_transfer_size_min pgaspi_transfer_size_min(min: *mut u64) -> i32;
            fn gaspi_passive_transfer_size_max pgaspi_passive_transfer_size_max(max: *mut u64) -> i32;
            fn gaspi_passive_transfer_size_min pgaspi_passive_transfer_size_min(min: *mut u64) -> i32;
            fn gaspi_atomic_max pgaspi_atomic_max(max: *mut u64) -> i32;
            fn gaspi_passive_send pgaspi_passive_send(segment: u8, offset: u64, rank: u16, size: u64, timeout: u64) -> i32;
            fn gaspi_passive_receive pgaspi_passive_receive(
                segment: u8, offset: u64, rank: *mut u16, size: u64, timeout: u64,
            ) -> i32;
            fn gaspi_passive_queue_purge pgaspi_passive_queue_purge(timeout: u64) -> i32;
            fn gaspi_config_get pgaspi_config_get(config: *mut gaspi_config_t) -> i32;
            fn gaspi_config_set pgaspi_config_set(config: gaspi_config_t) -> i32;
            fn gaspi_proc_init pgaspi_proc_init(timeout: u64) -> i32;
            fn gaspi_proc_term pgaspi_proc_term(timeout: u64) -> i32;
            fn gaspi_proc_num pgaspi_proc_num(num: *mut u16) -> i32;
            fn gaspi_proc_rank pgaspi_proc_rank(rank: *mut u16) -> i32;
            fn gaspi_proc_kill pgaspi_proc_kill(rank: u16, timeout: u64) -> i32;
            fn gaspi_proc_ping pgaspi_proc_ping(rank: u16, timeout: u64) -> i32;
            fn gaspi_connect pgaspi_connect(rank: u16, timeout: u64) -> i32;
            fn gaspi_disconnect pgaspi_disconnect(rank: u16, timeout: u64) -> i32;
            fn gaspi_initialized pgaspi_initialized(initialized: *mut u32) -> i32;
            fn gaspi_proc_local_rank pgaspi_proc_local_rank(rank: *mut u16) -> i32;
            fn gaspi_proc_local_num pgaspi_proc_local_num(num: *mut u16) -> i32;
            fn gaspi_proc_incarnation pgaspi_proc_incarnation(incarnation: *mut u32) -> i32;
            fn gaspi_state_vec_get pgaspi_state_vec_get(states: *mut i32) -> i32;
            fn gaspi_state_vec_get_17 pgaspi_state_vec_get_17(states: *mut *mut i32) -> i32;
            fn gaspi_segment_alloc pgaspi_segment_alloc(id: u8, size: u64, policy: u32) -> i32;
            fn gaspi_segment_register pgaspi_segment_register(id: u8, rank: u16, timeout: u64) -> i32;
            fn gaspi_segment_create pgaspi_segment_create(id: u8, size: u64, group: u8, timeout: u64, policy: u32) -> i32;
            fn gaspi_segment_bind pgaspi_segment_bind(id: u8, pointer: *mut u8, size: u64, description: i32) -> i32;
            fn gaspi_segment_use pgaspi_segment_use(
                id: u8, pointer: *mut u8, size: u64, group: u8, timeout: u64, description: i32,
            ) -> i32;
            fn gaspi_segment_delete pgaspi_segment_delete(id: u8) -> i32;
            fn gaspi_segment_num pgaspi_segment_num(num: *mut u32) -> i32;
            fn gaspi_segment_list pgaspi_segment_list(num: u32, ids: *mut u8) -> i32;
            fn gaspi_segment_ptr pgaspi_segment_ptr(id: u8, pointer: *mut *mut u8) -> i32;
            fn gaspi_segment_size pgaspi_segment_size(id: u8, rank: u16, size: *mut u64) -> i32;
            fn gaspi_segment_avail_local pgaspi_segment_avail_local(id: *mut u8) -> i32;
            fn gaspi_statistic_verbosity_level pgaspi_statistic_verbosity_level(level: u32) -> i32;
            fn gaspi_statistic_counter_max pgaspi_statistic_counter_max(max: *mut u32) -> i32;
            fn gaspi_statistic_counter_info pgaspi_statistic_counter_info(
                counter: u32, argument: *mut u32, name: *mut *mut c_char, description: *mut *mut c_char,
                level: *mut u32,
            ) -> i32;
            fn gaspi_statistic_counter_get pgaspi_statistic_counter_get(counter: u32, argument: u32, value: *mut u64) -> i32;
            fn gaspi_statistic_counter_get_17 pgaspi_statistic_counter_get_17(
                counter: u32, argument: u32, value: *mut u32,
            ) -> i32;
            fn gaspi_statistic_counter_reset pgaspi_statistic_counter_reset(counter: u32) -> i32;
            fn gaspi_statistic_print_counters pgaspi_statistic_print_counters() -> i32;
            fn gaspi_write pgaspi_write(
                segment_local: u8, offset_local: u64, rank: u16, segment_remote: u8, offset_remote: u64, size: u64,
                queue: u8, timeout: u64,
            ) -> i32;
            fn gaspi_read pgaspi_read(
                segment_local: u8, offset_local: u64, rank: u16, segment_remote: u8, offset_remote: u64, size: u64,
                queue: u8, timeout: u64,
            ) -> i32;
            fn gaspi_write_notify pgaspi_write_notify(
                segment_local: u8, offset_local: u64, rank: u16, segment_remote: u8, offset_remote: u64, size: u64,
                id: u32, value: u32, queue: u8, timeout: u64,
            ) -> i32;
            fn gaspi_read_notify pgaspi_read_notify(
                segment_local: u8, offset_local: u64, rank: u16, segment_remote: u8, offset_remote: u64, size: u64,
                id: u32, queue: u8, timeout: u64,
            ) -> i32;
            fn gaspi_notify pgaspi_notify(segment: u8, rank: u16, id: u32, value: u32, queue: u8, timeout: u64) -> i32;
            fn gaspi_write_list pgaspi_write_list(
                num: u32, segment_local: *const u8, offset_local: *const u64, rank: u16, segment_remote: *const u8,
                offset_remote: *const u64, size: *const u64, queue: u8, timeout: u64,
            ) -> i32;
            fn gaspi_write_list_notify pgaspi_write_list_notify(
                num: u32, segment_local: *const u8, offset_local: *const u64, rank: u16, segment_remote: *const u8,
                offset_remote: *const u64, size: *const u64, segment: u8, id: u32, value: u32, queue: u8, timeout: u64,
            ) -> i32;
            fn gaspi_read_list pgaspi_read_list(
                num: u32, segment_local: *const u8, offset_local: *const u64, rank: u16, segment_remote: *const u8,
                offset_remote: *const u64, size: *const u64, queue: u8, timeout: u64,
            ) -> i32;
            fn gaspi_read_list_notify pgaspi_read_list_notify(
                num: u32, segment_local: *const u8, offset_local: *const u64, rank: u16, segment_remote: *const u8,
                offset_remote: *const u64, size: *const u64, segment: u8, id: u32, queue: u8, timeout: u64,
            ) -> i32;
            fn gaspi_wait pgaspi_wait(queue: u8, timeout: u64) -> i32;
            fn gaspi_notify_waitsome pgaspi_notify_waitsome(
                segment: u8, begin: u32, num: u32, first: *mut u32, timeout: u64,
            ) -> i32;
            fn gaspi_notify_reset pgaspi_notify_reset(segment: u8, id: u32, old: *mut u32) -> i32;
            fn gaspi_queue_create pgaspi_queue_create(queue: *mut u8, timeout: u64) -> i32;
            fn gaspi_queue_delete pgaspi_queue_delete(queue: u8) -> i32;
            fn gaspi_queue_size pgaspi_queue_size(queue: u8, size: *mut u32) -> i32;
            fn gaspi_queue_purge pgaspi_queue_purge(queue: u8, timeout: u64) -> i32;
            fn gaspi_atomic_fetch_add pgaspi_atomic_fetch_add(
                segment: u8, offset: u64, rank: u16, value: u64, old: *mut u64, timeout: u64,
            ) -> i32;
            fn gaspi_atomic_compare_swap pgaspi_atomic_compare_swap(
                segment: u8, offset: u64, rank: u16, comparator: u64, new: u64, old: *mut u64, timeout: u64,
            ) -> i32;
            fn gaspi_operation_get_num_requests pgaspi_operation_get_num_requests(
                operation: u32, num: u32, num_requests: *mut u32,
            ) -> i32;
            fn gaspi_operation_submit pgaspi_operation_submit(
                operation: u32, tag: i64, segment_local: u8, offset_local: u64, rank: u16, segment_remote: u8, offset_remote: u64, size: u64,
                id: u32, value: u32, queue: u8, timeout: u64,
            ) -> i32;
            fn gaspi_operation_list_submit pgaspi_operation_list_submit(
                operation: u32, tag: i64, num: u32, segment_local: *const u8, offset_local: *const u64, rank: u16,
                segment_remote: *const u8, offset_remote: *const u64, size: *const u64, segment: u8, id: u32, value: u32, queue: u8, timeout: u64,
            ) -> i32;
            fn gaspi_request_wait pgaspi_request_wait(
                queue: u8, max: u32, num_completed: *mut u32, tags: *mut i64, statuses: *mut gaspi_status_t, timeout: u64,
            ) -> i32;
            fn gaspi_queue_group_create pgaspi_queue_group_create(group: u8, queue_begin: u8, queue_num: u32, policy: u32) -> i32;
            fn gaspi_queue_group_delete pgaspi_queue_group_delete(group: u8) -> i32;
            fn gaspi_queue_group_get_queue pgaspi_queue_group_get_queue(group: u8, queue: *mut u8) -> i32;
            fn gaspi_queue_group_max pgaspi_queue_group_max(max: *mut u32) -> i32;
        } {
            fn gaspi_threads_get_tid(place: *mut i32) -> i32;
            fn gaspi_threads_get_total(place: *mut i32) -> i32;
            fn gaspi_threads_get_num_cores(place: *mut i32) -> i32;
            fn gaspi_threads_register(place: *mut i32) -> i32;
            fn gaspi_threads_init(place: *mut i32) -> i32;
            fn gaspi_threads_init_user(threads: u32) -> i32;
            fn gaspi_threads_term() -> i32;
            fn gaspi_threads_run(function: Option<gaspi_thread_function>, arg: *mut c_void) -> i32;
            fn gaspi_threads_sync() -> ();
            fn gaspi_threads_sync_all(group: u8, timeout: u64) -> i32;
        } }
    };
}

/// Passes to `$callback!` two declarations for each entry of the first list: the procedure, and its name for profilers.
#[macro_export]
macro_rules! __with_profiled {
    ($callback:ident { $(fn $name:ident $profiled:ident($($parameter:ident: $ty:ty),* $(,)?) -> $result:ty;)* } { $($alone:tt)* }) => {
        $callback! {
            $(fn $name($($parameter: $ty),*) -> $result; fn $profiled($($parameter: $ty),*) -> $result;)*
            $($alone)*
        }
    };
}

/// `gaspi_printf`.
pub type gaspi_printf_t = unsafe extern "C" fn(format: *const c_char, ...);
/// `gaspi_printf_to`.
pub type gaspi_printf_to_t = unsafe extern "C" fn(rank: c_ushort, format: *const c_char, ...);

macro_rules! table {
    ($(fn $name:ident($($parameter:ident: $ty:ty),* $(,)?) -> $result:ty;)*) => {
        /// The functions of a loaded library; `None` for a function that the library lacks.
        #[derive(Debug, Clone, Copy)]
        pub struct GaspiFunctions {
            $(pub $name: Option<unsafe extern "C" fn($($parameter: $ty),*) -> $result>,)*
            pub gaspi_printf: Option<gaspi_printf_t>,
            pub gaspi_printf_to: Option<gaspi_printf_to_t>,
        }

        impl GaspiFunctions {
            /// The names, in the order of the list.
            pub const NAMES: &'static [&'static str] = &[$(stringify!($name)),*];

            /// The table of the functions that `symbol` finds; `symbol` returns null for a name that the library lacks.
            ///
            /// # Safety
            /// `symbol` returns null, or the address of the function of that name. The function stays loaded.
            pub unsafe fn load(symbol: impl Fn(&CStr) -> *mut c_void) -> Self {
                GaspiFunctions {
                    $($name: {
                        let found = symbol(const { c_name(concat!(stringify!($name), "\0")) });
                        // SAFETY:
                        // - null becomes `None`; any other address is the function of this name (contract of this call). The header declares this type.
                        unsafe { std::mem::transmute::<*mut c_void, Option<unsafe extern "C" fn($($ty),*) -> $result>>(found) }
                    },)*
                    gaspi_printf: {
                        let found = symbol(c"gaspi_printf");
                        // SAFETY:
                        // - as above.
                        unsafe { std::mem::transmute::<*mut c_void, Option<gaspi_printf_t>>(found) }
                    },
                    gaspi_printf_to: {
                        let found = symbol(c"gaspi_printf_to");
                        // SAFETY:
                        // - as above.
                        unsafe { std::mem::transmute::<*mut c_void, Option<gaspi_printf_to_t>>(found) }
                    },
                }
            }

            /// The names that the library lacks.
            pub fn missing(&self) -> impl Iterator<Item = &'static str> {
                [
                    $((stringify!($name), self.$name.is_none()),)*
                    ("gaspi_printf", self.gaspi_printf.is_none()),
                    ("gaspi_printf_to", self.gaspi_printf_to.is_none()),
                ]
                    .into_iter()
                    .filter_map(|(name, is_missing)| is_missing.then_some(name))
            }
        }
    };
}

const fn c_name(name: &'static str) -> &'static CStr {
    match CStr::from_bytes_with_nul(name.as_bytes()) {
        Ok(name) => name,
        Err(_) => panic!("a name has no zero in it"),
    }
}

gaspi_functions!(table);
