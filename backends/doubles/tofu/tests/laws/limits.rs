//! Exceeded limits return their codes.

use unipgas_utofu_sys::*;

use crate::kit::*;
use crate::process::alone;

#[test]
fn arguments_have_their_codes() {
    alone("putget=4096", || {
        let (a, b) = two();
        let mut caps = std::ptr::null_mut();
        ok!(utofu_query_onesided_caps(0, &mut caps));
        // SAFETY:
        // - `caps` points to a structure of the library.
        let caps = unsafe { *caps };
        assert_eq!((caps.max_putget_size, caps.max_piggyback_size), (4096, 32));

        let put = |length, edata, flags| a.put_from(a.stadd, &b, (length, edata), flags, 0);
        assert_eq!(put(4096, 255, TCQ), UTOFU_SUCCESS);
        assert_eq!(put(4097, 0, 0), UTOFU_ERR_INVALID_SIZE);
        assert_eq!(put(8, 256, 0), UTOFU_ERR_INVALID_EDATA);
        for bit in [4, 6, 7, 9, 13, 16, 23, 36, 63] {
            assert_eq!(put(8, 0, 1 << bit), UTOFU_ERR_INVALID_FLAGS, "bit {bit}");
        }
        assert_eq!(
            put(8, 0, UTOFU_ONESIDED_FLAG_PADDING),
            UTOFU_ERR_INVALID_FLAGS
        );
        assert_eq!(a.get_bytes(&b, 4097, 0, 0), UTOFU_ERR_INVALID_SIZE);

        let (own, id, from, to, none) = (a.handle, b.id, a.stadd, b.stadd, cbdata(0));
        let mut data = [0u8; 64];
        let (data, padded) = (data.as_mut_ptr().cast(), UTOFU_ONESIDED_FLAG_PADDING);
        let piggyback = |length| {
            call!(utofu_put_piggyback(
                own, id, data, to, length, 0, padded, none
            ))
        };
        assert_eq!(
            (piggyback(32), piggyback(33)),
            (UTOFU_SUCCESS, UTOFU_ERR_INVALID_SIZE)
        );
        let word = |length| a.put_word(&b, 0, (1, length), 0, 0);
        assert_eq!((word(8), word(9)), (UTOFU_SUCCESS, UTOFU_ERR_INVALID_SIZE));

        let gap = |mtu, gap| call!(utofu_put_gap(own, id, from, to, 8, 0, 0, mtu, gap, none));
        assert_eq!(gap(1920, 255), UTOFU_SUCCESS);
        assert_eq!(
            (gap(1921, 0), gap(0, 0)),
            (UTOFU_ERR_INVALID_SIZE, UTOFU_ERR_INVALID_SIZE)
        );
        assert_eq!(gap(1920, 256), UTOFU_ERR_INVALID_ARG);
        let blocks = |number| a.put_stride(&b, (8, 8, number), 0, 0);
        assert_eq!(blocks(2), UTOFU_SUCCESS);
        assert_eq!(
            (blocks(0), blocks(4097)),
            (UTOFU_ERR_INVALID_NUMBER, UTOFU_ERR_INVALID_NUMBER)
        );

        let mut told = cbdata(0);
        let poll = call!(utofu_poll_tcq(a.handle, 1, &mut told));
        assert_eq!(poll, UTOFU_ERR_INVALID_FLAGS);
        let dereg = call!(utofu_dereg_mem(b.handle, b.stadd, 1));
        assert_eq!(dereg, UTOFU_ERR_INVALID_FLAGS);
    });
}

#[test]
fn memory_has_its_codes() {
    alone("regs=2", || {
        let a = TestVcq::new(0, 0);
        let mut stadd = 0;
        let mut with_stag = |offset: usize, size, stag, flags| {
            let address = a.memory.wrapping_add(offset).cast();
            call!(utofu_reg_mem_with_stag(
                a.handle, address, size, stag, flags, &mut stadd
            ))
        };
        assert_eq!(with_stag(1, 256, 3, 0), UTOFU_ERR_INVALID_ADDRESS);
        assert_eq!(with_stag(128, 256, 3, 0), UTOFU_ERR_INVALID_ADDRESS);
        assert_eq!(with_stag(256, 255, 3, 0), UTOFU_ERR_INVALID_SIZE);
        assert_eq!(with_stag(0, 256, 256, 0), UTOFU_ERR_INVALID_STAG);
        assert_eq!(with_stag(0, 256, 255, 2), UTOFU_ERR_INVALID_FLAGS);
        assert_eq!(
            with_stag(0, 256, 255, UTOFU_REG_MEM_FLAG_READ_ONLY),
            UTOFU_SUCCESS
        );
        assert_eq!(with_stag(0, 256, 254, 0), UTOFU_ERR_FULL);
        assert_eq!(a.deregister(), UTOFU_SUCCESS);
        assert_eq!(with_stag(0, 256, 255, 0), UTOFU_ERR_USED);
        assert_eq!(with_stag(0, 0, 1, 0), UTOFU_ERR_INVALID_SIZE);
        let mut stadd = 0;
        let nowhere = std::ptr::null_mut();
        let code = call!(utofu_reg_mem(a.handle, nowhere, 8, 0, &mut stadd));
        assert_eq!(code, UTOFU_ERR_INVALID_ADDRESS);
        assert_eq!(
            call!(utofu_query_stadd(a.id, 256, &mut stadd)),
            UTOFU_ERR_INVALID_STAG
        );
    });
}

/// Guide §3.6.1: repeated registrations have the same STADD, until an equal number of deregistrations.
#[test]
fn memory_is_registered_more_than_once() {
    alone("regs=1", || {
        let a = TestVcq::new(0, 0);
        let again = |offset: usize, stadd: &mut utofu_stadd_t| {
            let address = a.memory.wrapping_add(offset).cast();
            call!(utofu_reg_mem(a.handle, address, SIZE - offset, 0, stadd))
        };
        let mut stadd = 0;
        assert_eq!(again(0, &mut stadd), UTOFU_SUCCESS);
        assert_eq!(stadd, a.stadd);
        assert_eq!(again(4096, &mut stadd), UTOFU_ERR_FULL);
        assert_eq!(a.deregister(), UTOFU_SUCCESS);
        let own = a.put(&a, TCQ, 1);
        assert_eq!((own, a.next_tcq()), (UTOFU_SUCCESS, (UTOFU_SUCCESS, 1)));
        assert_eq!((a.deregister(), again(4096, &mut stadd)), (0, 0));
    });
}

#[test]
fn interfaces_and_queues_end() {
    alone("tnis=2,vcqs=3,armw=0,session=0", || {
        for list in [
            tofu().utofu_get_onesided_tnis,
            tofu().utofu_get_barrier_tnis,
        ] {
            let (mut ids, mut number) = (std::ptr::null_mut(), 9);
            // SAFETY:
            // - both pointers are valid for writes, and the array has `number` elements.
            unsafe {
                assert_eq!(list(&mut ids, &mut number), UTOFU_SUCCESS);
                assert_eq!(std::slice::from_raw_parts(ids, number), [0, 1]);
                libc::free(ids.cast());
            }
        }
        assert_eq!(create(2, 0), Err(UTOFU_ERR_INVALID_TNI_ID));
        let both = UTOFU_VCQ_FLAG_EXCLUSIVE | UTOFU_VCQ_FLAG_SESSION_MODE;
        for flags in [8, both] {
            assert_eq!(create(0, flags), Err(UTOFU_ERR_INVALID_FLAGS));
        }
        let session = create(0, UTOFU_VCQ_FLAG_SESSION_MODE);
        assert_eq!(session, Err(UTOFU_ERR_NOT_SUPPORTED));
        let mut handle = 0;
        let exclusive = UTOFU_VCQ_FLAG_EXCLUSIVE;
        let code = call!(utofu_create_vcq_with_cmp_id(0, 0, exclusive, &mut handle));
        assert_eq!(code, UTOFU_ERR_INVALID_FLAGS);
        let code = call!(utofu_create_vcq_with_cmp_id(0, 8, 0, &mut handle));
        assert_eq!(code, UTOFU_ERR_INVALID_CMP_ID);
        let mut id = 0;
        let construct = |tni, cmp, id: &mut u64| {
            let mut coords = coordinates();
            call!(utofu_construct_vcq_id(coords.as_mut_ptr(), tni, 0, cmp, id))
        };
        assert_eq!(construct(2, 0, &mut id), UTOFU_ERR_INVALID_TNI_ID);
        assert_eq!(construct(1, 8, &mut id), UTOFU_ERR_INVALID_CMP_ID);
        assert_eq!(construct(1, 7, &mut id), UTOFU_SUCCESS);
        let all: Vec<TestVcq> = (0..3).map(|_| TestVcq::new(0, 0)).collect();
        assert_eq!(create(0, 0), Err(UTOFU_ERR_FULL));
        assert!(create(1, 0).is_ok());
        assert_eq!(all[1].free(), UTOFU_SUCCESS);
        assert!(create(0, 0).is_ok());

        let mut caps = std::ptr::null_mut();
        assert_eq!(
            call!(utofu_query_onesided_caps(2, &mut caps)),
            UTOFU_ERR_INVALID_TNI_ID
        );
        ok!(utofu_query_onesided_caps(1, &mut caps));
        // SAFETY:
        // - `caps` points to a structure of the library.
        let caps = unsafe { *caps };
        assert_eq!((caps.flags, caps.armw_ops), (0, 0));
        let mut caps = std::ptr::null_mut();
        assert_eq!(
            call!(utofu_query_barrier_caps(2, &mut caps)),
            UTOFU_ERR_INVALID_TNI_ID
        );
        ok!(utofu_query_barrier_caps(1, &mut caps));
        let (a, b) = (all[0], all[2]);
        let armw = call!(utofu_armw4(a.handle, b.id, 1, 0, b.stadd, 0, 0, cbdata(0)));
        assert_eq!(armw, UTOFU_ERR_NOT_SUPPORTED);
        let mut ids = [0; 2];
        let alloc = |tni, flags, ids: &mut [u64; 2]| {
            call!(utofu_alloc_vbg(tni, 2, flags, ids.as_mut_ptr()))
        };
        assert_eq!(alloc(2, 0, &mut ids), UTOFU_ERR_INVALID_TNI_ID);
        assert_eq!(alloc(1, 2, &mut ids), UTOFU_ERR_INVALID_FLAGS);
        assert_eq!(alloc(1, 0, &mut ids), UTOFU_SUCCESS);
        let data = [0u64; 7].as_mut_ptr();
        let op = UTOFU_REDUCE_OP_SUM;
        let reduce = call!(utofu_reduce_uint64(ids[0], op, data, 7, 0));
        assert_eq!(reduce, UTOFU_ERR_INVALID_NUMBER);
    });
}

#[test]
fn without_interfaces_there_is_no_list() {
    alone("tnis=0", || {
        let (mut ids, mut number) = (std::ptr::without_provenance_mut(8), 9);
        let code = call!(utofu_get_onesided_tnis(&mut ids, &mut number));
        assert_eq!((code, ids.is_null(), number), (UTOFU_SUCCESS, true, 0));
    });
}

/// VCQs that share a CQ share its TOQ. A poll on any of them makes room.
#[test]
fn the_toq_is_full_until_it_is_polled() {
    alone("toq=4", || {
        let (a, other) = (TestVcq::new(0, 0), TestVcq::new(0, 0));
        for number in 0..3 {
            assert_eq!(a.put(&other, 0, number), UTOFU_SUCCESS);
        }
        assert_eq!(other.put(&a, TCQ, 3), UTOFU_SUCCESS);
        assert_eq!(a.unread_tcq(), 4);
        assert_eq!(a.put(&other, 0, 4), UTOFU_ERR_BUSY);
        assert_eq!(call!(utofu_nop(other.handle, 0, cbdata(0))), UTOFU_ERR_BUSY);
        assert_eq!(counts()["toq_full"], 2);
        assert_eq!(a.poll_tcq().0, UTOFU_ERR_NOT_FOUND);
        assert_eq!(a.unread_tcq(), 0);
        let blocks = |number| a.put_stride(&other, (8, 8, number), 0, 0);
        assert_eq!((blocks(3), blocks(2)), (UTOFU_SUCCESS, UTOFU_ERR_BUSY));
        assert_eq!(other.next_tcq(), (UTOFU_SUCCESS, 3));
        assert_eq!(blocks(4), UTOFU_SUCCESS);
    });
}
