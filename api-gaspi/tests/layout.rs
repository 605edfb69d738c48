//! The Rust types agree with the C types of the headers. The header tests check the same tables in C.

use std::collections::BTreeSet;
use std::mem::{align_of, offset_of};

use unipgas_core::Deadline;
use unipgas_gaspi::config::DeviceConfig;
use unipgas_gaspi::status::SUCCESS;
use unipgas_gaspi::{Config, Datatype, GROUP_ALL, ReductionOperation, Status, ffi, process};

#[path = "headers/layout.rs"]
mod layout;

type Rank = u16;
type Group = u8;
type Segment = u8;
type Queue = u8;
type Number = u32;
type Offset = u64;
type Size = u64;
type Timeout = u64;
type AtomicValue = u64;
type NotificationId = u32;
type Notification = u32;
type Time = f32;
type Cycles = u64;
type Enumeration = i32;
type Code = i32;

fn value(name: &str) -> i128 {
    let found = layout::VALUES.iter().find(|(known, _)| *known == name);
    found
        .unwrap_or_else(|| panic!("{name} is not in the table"))
        .1
}

fn c_type(name: &str) -> (i128, i128) {
    let found = layout::TYPES.iter().find(|(known, _, _)| *known == name);
    let (_, size, align) = found.unwrap_or_else(|| panic!("{name} is not in the table"));
    (*size, *align)
}

/// Size and alignment.
fn rust_type<T>() -> (i128, i128) {
    (size_of::<T>() as i128, align_of::<T>() as i128)
}

#[test]
fn types_have_their_size_and_sign() {
    macro_rules! check {
        ($($name:literal: $ty:ty, $least:expr;)*) => {$(
            assert_eq!(rust_type::<$ty>(), c_type($name), $name);
            let unsigned = $least == 0 as $ty;
            assert_eq!(unsigned, layout::UNSIGNED.contains(&$name), "sign of {}", $name);
        )*};
    }
    check! {
        "gaspi_rank_t": Rank, Rank::MIN;
        "gaspi_group_t": Group, Group::MIN;
        "gaspi_segment_id_t": Segment, Segment::MIN;
        "gaspi_queue_id_t": Queue, Queue::MIN;
        "gaspi_number_t": Number, Number::MIN;
        "gaspi_offset_t": Offset, Offset::MIN;
        "gaspi_size_t": Size, Size::MIN;
        "gaspi_timeout_t": Timeout, Timeout::MIN;
        "gaspi_atomic_value_t": AtomicValue, AtomicValue::MIN;
        "gaspi_notification_id_t": NotificationId, NotificationId::MIN;
        "gaspi_notification_t": Notification, Notification::MIN;
        "gaspi_time_t": Time, Time::MIN;
        "gaspi_cycles_t": Cycles, Cycles::MIN;
        "gaspi_return_t": Code, Code::MIN;
        "gaspi_state_t": Enumeration, Enumeration::MIN;
    }
    assert_eq!(rust_type::<Config>(), c_type("gaspi_config_t"));
    assert_eq!(rust_type::<DeviceConfig>(), c_type("gaspi_dev_config_t"));
}

/// A procedure with other argument types does not compile here.
const _: () = {
    type Transfer =
        unsafe extern "C" fn(Segment, Offset, Rank, Segment, Offset, Size, Queue, Timeout) -> Code;
    let _: [Transfer; 4] = [
        ffi::gaspi_write,
        ffi::pgaspi_write,
        ffi::gaspi_read,
        ffi::pgaspi_read,
    ];
    let _: unsafe extern "C" fn(Queue, Timeout) -> Code = ffi::gaspi_wait;
    let _: unsafe extern "C" fn(Group, Timeout) -> Code = ffi::gaspi_barrier;
    type Notify =
        unsafe extern "C" fn(Segment, Rank, NotificationId, Notification, Queue, Timeout) -> Code;
    let _: Notify = ffi::gaspi_notify;
    type WaitSome =
        unsafe extern "C" fn(Segment, NotificationId, Number, *mut NotificationId, Timeout) -> Code;
    let _: WaitSome = ffi::gaspi_notify_waitsome;
    type FetchAdd =
        unsafe extern "C" fn(Segment, Offset, Rank, AtomicValue, *mut AtomicValue, Timeout) -> Code;
    let _: FetchAdd = ffi::gaspi_atomic_fetch_add;
    let _: unsafe extern "C" fn(*mut Time) -> Code = ffi::gaspi_time_get;
    let _: unsafe extern "C" fn(*mut Cycles) -> Code = ffi::gaspi_time_ticks;
    let _: unsafe extern "C" fn(*mut Enumeration) -> Code = ffi::gaspi_state_vec_get;
    let _: unsafe extern "C" fn(*mut Config) -> Code = ffi::gaspi_config_get;
};

#[test]
fn configuration_has_its_fields_in_place() {
    fn size<F>(_: fn(&Config) -> &F) -> i128 {
        size_of::<F>() as i128
    }
    // The name in C, and the field in Rust. They differ for fields of the device, since Rust has no inner structures.
    macro_rules! fields {
        ($($name:literal: $($field:ident).+;)*) => {
            [$((
                $name,
                offset_of!(Config, $($field).+) as i128,
                size(|config| &config.$($field).+),
            )),*]
        };
    }
    let ours = fields! {
        "logger": logger;
        "sn_port": sn_port;
        "net_info": net_info;
        "user_net": user_net;
        "sn_persistent": sn_persistent;
        "sn_timeout": sn_timeout;
        "dev_config": dev_config;
        "dev_config.network_type": dev_config.network_type;
        "dev_config.params.ib.netdev_id": dev_config.netdev_id;
        "dev_config.params.ib.mtu": dev_config.mtu;
        "dev_config.params.ib.port_check": dev_config.port_check;
        "dev_config.params.tcp.port": dev_config.tcp_port;
        "dev_config.params.ofi.use_shm": dev_config.use_shm;
        "dev_config.params.ofi.provider_info": dev_config.provider_info;
        "dev_config.params.ofi.progress_auto": dev_config.progress_auto;
        "network": network;
        "queue_size_max": queue_size_max;
        "queue_num": queue_num;
        "group_max": group_max;
        "segment_max": segment_max;
        "transfer_size_max": transfer_size_max;
        "notification_num": notification_num;
        "passive_queue_size_max": passive_queue_size_max;
        "passive_transfer_size_max": passive_transfer_size_max;
        "allreduce_buf_size": allreduce_buf_size;
        "allreduce_elem_max": allreduce_elem_max;
        "rw_list_elem_max": rw_list_elem_max;
        "build_infrastructure": build_infrastructure;
        "user_defined": user_defined;
    };
    assert_eq!(ours, layout::CONFIG);
}

/// `ErrInvRank` is GASPI_ERR_INV_RANK in C.
fn c_name(status: Status) -> String {
    let mut name = String::from("GASPI");
    for letter in format!("{status:?}").chars() {
        if letter.is_ascii_uppercase() {
            name.push('_');
        }
        name.push(letter.to_ascii_uppercase());
    }
    name
}

#[test]
fn codes_have_their_values() {
    use Status::*;
    let ours: BTreeSet<(String, i128)> = [
        Error,
        Timeout,
        ErrEmfile,
        ErrEnv,
        ErrSnPort,
        ErrConfig,
        ErrNoinit,
        ErrInited,
        ErrNullptr,
        ErrInvSegsize,
        ErrInvSeg,
        ErrInvGroup,
        ErrInvRank,
        ErrInvQueue,
        ErrInvLocOff,
        ErrInvRemOff,
        ErrInvCommsize,
        ErrInvNotifVal,
        ErrInvNotifId,
        ErrInvNum,
        ErrInvSize,
        ErrManySeg,
        ErrManyGrp,
        QueueFull,
        ErrUnalignOff,
        ErrActiveColl,
        ErrDevice,
        ErrSn,
        ErrMemalloc,
    ]
    .into_iter()
    .map(|status| (c_name(status), status as i128))
    .collect();
    let theirs: BTreeSet<(String, i128)> = layout::VALUES
        .iter()
        .filter(|(name, _)| {
            name.starts_with("GASPI_ERR") || ["GASPI_TIMEOUT", "GASPI_QUEUE_FULL"].contains(name)
        })
        .map(|(name, value)| ((*name).to_owned(), *value))
        .collect();
    assert_eq!(ours, theirs);
    assert_eq!(i128::from(SUCCESS), value("GASPI_SUCCESS"));
}

#[test]
fn operations_and_datatypes_have_their_values() {
    let from = |name: &str| u32::try_from(value(name)).expect("not negative");
    let operations = [
        ("GASPI_OP_MIN", ReductionOperation::Min),
        ("GASPI_OP_MAX", ReductionOperation::Max),
        ("GASPI_OP_SUM", ReductionOperation::Sum),
    ];
    for (name, operation) in operations {
        assert_eq!(
            ReductionOperation::from_c(from(name)),
            Ok(operation),
            "{name}"
        );
    }
    let datatypes = [
        ("GASPI_TYPE_INT", Datatype::Int, "gaspi_int"),
        ("GASPI_TYPE_UINT", Datatype::Uint, "gaspi_uint"),
        ("GASPI_TYPE_FLOAT", Datatype::Float, "gaspi_float"),
        ("GASPI_TYPE_DOUBLE", Datatype::Double, "gaspi_double"),
        ("GASPI_TYPE_LONG", Datatype::Long, "gaspi_long"),
        ("GASPI_TYPE_ULONG", Datatype::Ulong, "gaspi_ulong"),
    ];
    for (name, datatype, element) in datatypes {
        assert_eq!(Datatype::from_c(from(name)), Ok(datatype), "{name}");
        assert_eq!(datatype.size() as i128, c_type(element).0, "{name}");
    }
    let count = |prefix: &str| {
        let of_kind = |(name, _): &&(&str, i128)| name.starts_with(prefix);
        layout::VALUES.iter().filter(of_kind).count() as u32
    };
    assert_eq!(count("GASPI_OP_"), 3);
    assert_eq!(count("GASPI_TYPE_"), 6);
    for beyond in [count("GASPI_OP_"), u32::MAX] {
        assert!(ReductionOperation::from_c(beyond).is_err());
    }
    for beyond in [count("GASPI_TYPE_"), u32::MAX] {
        assert!(Datatype::from_c(beyond).is_err());
    }
}

#[test]
fn constants_have_their_values() {
    assert_eq!(i128::from(GROUP_ALL), value("GASPI_GROUP_ALL"));
    let timeout = |name: &str| Timeout::try_from(value(name)).expect("64 bits");
    let block = process::deadline(timeout("GASPI_BLOCK"));
    assert_eq!(block, Deadline::Never);
    let test = process::deadline(timeout("GASPI_TEST"));
    assert_eq!(test, Deadline::Now);
    let mut version = 0.0;
    // SAFETY:
    // - a local of the type that the procedure names.
    assert_eq!(unsafe { ffi::gaspi_version(&mut version) }, SUCCESS);
    let headers = value("GASPI_MAJOR_VERSION") * 100
        + value("GASPI_MINOR_VERSION") * 10
        + value("GASPI_REVISION");
    assert_eq!((version * 100.0).round() as i128, headers);
}
