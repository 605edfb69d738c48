//! Undefined behavior of the machine ends the program.

use unipgas_utofu_sys::*;

use crate::kit::*;
use crate::process::{alone, dies};

macro_rules! deadly {
    ($($(#[$attribute:meta])* $name:ident($settings:literal, $line:literal) $body:block)*) => {$(
        $(#[$attribute])*
        #[test]
        fn $name() {
            dies($settings, $line, || $body);
        }
    )*};
}

deadly! {
    a_handle_that_was_never_given_out("", "utofu_nop: no VCQ has this handle") {
        call!(utofu_nop(4711, 0, cbdata(0)));
    }
    a_handle_that_was_freed("", "utofu_poll_tcq: no VCQ has this handle") {
        let a = TestVcq::new(0, 0);
        assert_eq!(a.free(), UTOFU_SUCCESS);
        a.poll_tcq();
    }
    a_vcq_freed_twice("", "utofu_free_vcq: no VCQ has this handle") {
        let a = TestVcq::new(0, 0);
        assert_eq!(a.free(), UTOFU_SUCCESS);
        a.free();
    }
    a_local_range_of_another_vcq("", "utofu_put: 8 bytes at local STADD") {
        // STADDs of different TNIs may be equal.
        let (a, b) = (TestVcq::new(0, 0), TestVcq::new(0, 0));
        call!(utofu_put(a.handle, b.id, b.stadd, b.stadd, 8, 0, 0, cbdata(0)));
    }
    a_local_range_beyond_the_end("", "utofu_get: 16 bytes at local STADD") {
        let (a, b) = two();
        let to = a.stadd + SIZE as u64 - 8;
        call!(utofu_get(a.handle, b.id, to, b.stadd, 16, 0, 0, cbdata(0)));
    }
    a_last_block_beyond_the_end("", "utofu_put_stride: 8 bytes at local STADD") {
        let (a, b) = two();
        let last = SIZE / 2;
        call!(utofu_put_stride(a.handle, b.id, a.stadd, b.stadd, 8, last, 3, 0, 0, cbdata(0)));
    }
    a_word_of_8_that_is_not_aligned("", "utofu_armw8: the word at 0x") {
        let (a, b) = two();
        call!(utofu_armw8(a.handle, b.id, 1, 1, b.stadd + 4, 0, 0, cbdata(0)));
    }
    a_word_of_4_that_is_not_aligned("", "utofu_prepare_cswap4: the word at 0x") {
        let (a, b) = two();
        let (mut words, mut size) = ([0u64; 8], 0);
        let place = words.as_mut_ptr().cast();
        call!(utofu_prepare_cswap4(a.handle, b.id, 1, 1, b.stadd + 2, 0, 0, place, &mut size));
    }
    blocks_over_each_other("", "utofu_get_stride: blocks of 16 bytes, 8 bytes apart") {
        let (a, b) = two();
        call!(utofu_get_stride(a.handle, b.id, a.stadd, b.stadd, 16, 8, 2, 0, 0, cbdata(0)));
    }
    memory_deregistered_twice("", "utofu_dereg_mem: no memory of this VCQ is registered") {
        let a = TestVcq::new(0, 0);
        assert_eq!(a.deregister(), UTOFU_SUCCESS);
        a.deregister();
    }
    memory_deregistered_from_its_middle("", "utofu_dereg_mem: no memory of this VCQ is registered") {
        let a = TestVcq::new(0, 0);
        call!(utofu_dereg_mem(a.handle, a.stadd + 8, 0));
    }
    memory_that_a_put_may_still_read("", "utofu_dereg_mem: a Put of 8 bytes") {
        let (a, b) = two();
        assert_eq!(a.put(&b, TCQ, 1), UTOFU_SUCCESS);
        a.deregister();
    }
    /// The put has no requested notice, and waits for a step.
    memory_that_a_silent_put_will_read("", "utofu_dereg_mem: a Put of 8 bytes") {
        let (a, b) = (TestVcq::new(0, UTOFU_VCQ_FLAG_SESSION_MODE), TestVcq::new(1, 0));
        assert_eq!(a.put(&b, REMOTE, 1), UTOFU_SUCCESS);
        a.deregister();
    }
    memory_that_a_later_put_may_still_read("", "utofu_dereg_mem: a Put of 8 bytes") {
        let (a, b) = two();
        assert_eq!(a.put(&b, TCQ, 1), UTOFU_SUCCESS);
        assert_eq!(a.put(&b, TCQ, 2), UTOFU_SUCCESS);
        a.next_tcq();
        a.deregister();
    }
    /// The TCQ descriptor only confirms the sending, not the arrival of the data.
    memory_that_a_get_may_still_write("", "utofu_dereg_mem: a Get of 8 bytes") {
        let (a, b) = two();
        assert_eq!(a.get(&b, TCQ | LOCAL, 1), UTOFU_SUCCESS);
        a.next_tcq();
        a.deregister();
    }
    a_step_of_what_is_no_put("", "utofu_get: only a put") {
        let (a, b) = two();
        a.get(&b, UTOFU_ONESIDED_FLAG_SPS(1), 0);
    }
    a_get_in_session_mode("", "utofu_get: a VCQ of session mode takes put and NOP alone") {
        let (a, b) = (TestVcq::new(0, UTOFU_VCQ_FLAG_SESSION_MODE), TestVcq::new(1, 0));
        a.get(&b, 0, 0);
    }
    descriptors_of_another_vcq("", "utofu_post_toq: what begins at byte 0") {
        let (a, b) = two();
        let (mut words, mut size) = ([0u64; 8], 0);
        let place = words.as_mut_ptr().cast();
        ok!(utofu_prepare_nop(a.handle, 0, place, &mut size));
        call!(utofu_post_toq(b.handle, place, size, cbdata(0)));
    }
    half_a_descriptor("", "utofu_post_toq: what begins at byte 0") {
        let a = TestVcq::new(0, 0);
        let (mut words, mut size) = ([0u64; 8], 0);
        let place = words.as_mut_ptr().cast();
        ok!(utofu_prepare_nop(a.handle, 0, place, &mut size));
        call!(utofu_post_toq(a.handle, place, size - 4, cbdata(0)));
    }
    local_notices_that_nobody_polls("mrq=8", "the MRQ has 8 entries, and holds 8") {
        let (a, b) = two();
        for _ in 0..9 {
            a.put(&b, LOCAL, 0);
        }
    }
    remote_notices_that_nobody_polls("mrq=8", "utofu_poll_mrq: the MRQ has 8 entries, and holds 8") {
        let (a, b) = two();
        for _ in 0..8 {
            assert_eq!(a.put(&b, REMOTE, 0), UTOFU_SUCCESS);
        }
        b.poll_mrq();
    }
    gates_freed_twice("", "utofu_free_vbg: VBG 0x") {
        let mut ids = [0; 2];
        ok!(utofu_alloc_vbg(0, 2, 0, ids.as_mut_ptr()));
        ok!(utofu_free_vbg(ids.as_mut_ptr(), 2));
        call!(utofu_free_vbg(ids.as_mut_ptr(), 2));
    }
}

/// Counterparts of the tests above that just keep the rules.
#[test]
fn what_keeps_the_rules_goes_on() {
    alone("mrq=8", || {
        let (a, b) = two();
        let ordered = UTOFU_ONESIDED_FLAG_STRONG_ORDER;
        assert_eq!(a.put_stride(&b, (16, 8, 2), ordered, 0), UTOFU_SUCCESS);
        for _ in 0..100 {
            assert_eq!(a.put(&b, LOCAL | REMOTE, 0), UTOFU_SUCCESS);
            a.notice(UTOFU_MRQ_TYPE_LCL_PUT);
            b.notice(UTOFU_MRQ_TYPE_RMT_PUT);
        }
        assert_eq!(a.get(&b, LOCAL, 0), UTOFU_SUCCESS);
        a.notice(UTOFU_MRQ_TYPE_LCL_GET);
        assert_eq!(a.put(&b, LOCAL, 0), UTOFU_SUCCESS);
        // No TCQ descriptor is unread: the put is sent.
        assert_eq!(a.poll_tcq().0, UTOFU_ERR_NOT_FOUND);
        assert_eq!((a.unread_tcq(), a.deregister()), (0, UTOFU_SUCCESS));
        // The notice of a later put confirms this one. A peer may have confirmed the last one.
        assert_eq!(b.put(&b, TCQ, 0), UTOFU_SUCCESS);
        assert_eq!(b.put(&b, LOCAL, 0), UTOFU_SUCCESS);
        b.notice(UTOFU_MRQ_TYPE_LCL_PUT);
        assert_eq!(b.put(&b, REMOTE, 0), UTOFU_SUCCESS);
        assert_eq!(b.deregister(), UTOFU_SUCCESS);
    });
}

/// The library reports an unregistered local range at a poll.
#[test]
fn a_wrong_stadd_may_be_the_librarys_to_tell() {
    alone("stadds=tell", || {
        let (a, b) = (TestVcq::new(0, 0), TestVcq::new(0, 0));
        assert_eq!(a.put_from(b.stadd, &b, (8, 0), 0, 5), UTOFU_SUCCESS);
        assert_eq!(a.next_tcq(), (UTOFU_ERR_TCQ_STADD, 5));
        assert_eq!(a.deregister(), UTOFU_SUCCESS);
    });
}
