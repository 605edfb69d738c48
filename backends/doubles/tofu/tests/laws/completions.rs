//! Delayed completions, and completions of failed operations.

use unipgas_utofu_sys::*;

use crate::kit::*;
use crate::process::{alone, alone_with};

#[test]
fn late_ones_are_handed_out_at_their_poll() {
    alone("late=3,toq=2", || {
        let (a, b) = two();
        assert_eq!(a.put(&b, TCQ | LOCAL, 1), UTOFU_SUCCESS);
        assert_eq!(a.put(&b, TCQ, 2), UTOFU_SUCCESS);
        // The first poll finds the completions. The third poll after it returns the first one. Until then they keep their places.
        for _ in 0..3 {
            assert_eq!(a.poll_tcq().0, UTOFU_ERR_NOT_FOUND);
            assert_eq!(a.put(&b, 0, 0), UTOFU_ERR_BUSY);
        }
        assert_eq!(a.poll_tcq(), (UTOFU_SUCCESS, 1));
        assert_eq!(a.poll_tcq(), (UTOFU_SUCCESS, 2));
        assert_eq!(a.unread_mrq(), 1);
        for _ in 0..3 {
            assert_eq!(a.poll_mrq().0, UTOFU_ERR_NOT_FOUND);
        }
        a.notice(UTOFU_MRQ_TYPE_LCL_PUT);
        assert_eq!((a.unread_mrq(), a.deregister()), (0, UTOFU_SUCCESS));
    });
}

/// With a library that completes no operation within the call: places of the TOQ become free, also without a requested notice. Each completion arrives once and
/// in order.
#[test]
fn what_ends_later_is_told_later() {
    let backend = [("UNIPGAS_BACKEND", "streams")];
    alone_with("toq=4,mrq=64", &backend, || {
        const PUTS: usize = 200;
        let (a, other, b) = (TestVcq::new(0, 0), TestVcq::new(0, 0), TestVcq::new(1, 0));
        let flags = |put: usize| match put % 4 {
            0 => TCQ,
            1 => LOCAL,
            2 => TCQ | LOCAL,
            _ => 0,
        };
        let (mut told, mut notices) = (Vec::new(), 0);
        let mut poll = || {
            if let (UTOFU_SUCCESS, number) = a.poll_tcq() {
                told.push(number);
            }
            notices += usize::from(a.poll_mrq().0 == UTOFU_SUCCESS);
            (told.clone(), notices)
        };
        for put in 0..PUTS {
            let from = [&a, &other][put / 4 % 2];
            let flags = if put / 4 % 2 == 0 { flags(put) } else { 0 };
            while from.put(&b, flags, put) == UTOFU_ERR_BUSY {
                poll();
            }
        }
        let own = || (0..PUTS).filter(|put| put / 4 % 2 == 0);
        let asked: Vec<usize> = own().filter(|put| flags(*put) & TCQ != 0).collect();
        let noticed = own().filter(|put| flags(*put) & LOCAL != 0).count();
        let mut polls = 0;
        while poll() != (asked.clone(), noticed) {
            polls += 1;
            assert!(polls < 1 << 20, "{:?}", poll());
        }
        while other.unread_tcq() > 0 {
            poll();
        }
        assert_eq!(
            (a.deregister(), other.deregister()),
            (UTOFU_SUCCESS, UTOFU_SUCCESS)
        );
        assert_eq!(counts()["most"]["toq"], 4);
    });
}

/// This includes a descriptor without a requested notice. Earlier and later descriptors are executed.
#[test]
fn a_descriptor_that_is_not_sent_is_told_in_its_place() {
    alone("tcq=2:ERR_TCQ_MEMORY,tcq=4:ERR_TCQ_DESC", || {
        let (a, b) = two();
        for (at, flags, number) in [(0, TCQ | LOCAL, 1), (8, 0, 2), (16, TCQ | LOCAL, 3)] {
            assert_eq!(a.put_word(&b, at, (1, 8), flags, number), UTOFU_SUCCESS);
        }
        assert_eq!(a.next_tcq(), (UTOFU_SUCCESS, 1));
        assert_eq!(a.next_tcq(), (UTOFU_ERR_TCQ_MEMORY, 2));
        assert_eq!(a.next_tcq(), (UTOFU_SUCCESS, 3));
        a.notice(UTOFU_MRQ_TYPE_LCL_PUT);
        a.notice(UTOFU_MRQ_TYPE_LCL_PUT);
        assert_eq!([0, 8, 16].map(|at| b.word(at)), [1, 0, 1]);
        // An unsent get writes nothing.
        assert_eq!(a.get(&b, TCQ | LOCAL, 4), UTOFU_SUCCESS);
        assert_eq!(a.next_tcq(), (UTOFU_ERR_TCQ_DESC, 4));
        assert_eq!((a.word(0), a.poll_mrq().0), (0, UTOFU_ERR_NOT_FOUND));
        assert_eq!(a.deregister(), UTOFU_SUCCESS);
    });
}

#[test]
fn a_descriptor_that_fails_afterwards_is_told_by_the_mrq() {
    alone(
        "mrq=2:ERR_MRQ_PEER,mrq=4:ERR_MRQ_RMT_STADD,mrq=5:ERR_MRQ_OTHER",
        || {
            let (a, b) = two();
            a.set(0, 9);
            // The second of three blocks.
            assert_eq!(a.put_stride(&b, (8, 8, 3), TCQ, 1), UTOFU_SUCCESS);
            for _ in 0..3 {
                assert_eq!(a.next_tcq(), (UTOFU_SUCCESS, 1));
            }
            let (code, told) = a.next_mrq();
            assert_eq!(
                (code, told.edata, told.vcq_id),
                (UTOFU_ERR_MRQ_PEER, 7, b.id)
            );
            assert_eq!(told.notice_type, UTOFU_MRQ_TYPE_LCL_PUT);
            assert_eq!((told.rmt_stadd, b.word(0)), (b.stadd + 16, 9));
            // A NOP cannot fail this way. Polling the TCQ is not necessary.
            ok!(utofu_nop(a.handle, 0, cbdata(0)));
            assert_eq!(a.get(&b, LOCAL, 2), UTOFU_SUCCESS);
            let (code, told) = a.next_mrq();
            assert_eq!(
                (code, told.notice_type),
                (UTOFU_ERR_MRQ_RMT_STADD, UTOFU_MRQ_TYPE_LCL_GET)
            );
            assert_eq!(told.lcl_stadd, a.stadd + 8);
            assert_eq!(a.add(&b, 1, 3, REMOTE), UTOFU_SUCCESS);
            let (code, told) = a.next_mrq();
            assert_eq!(
                (code, told.notice_type),
                (UTOFU_ERR_MRQ_OTHER, UTOFU_MRQ_TYPE_LCL_ARMW)
            );
            assert_eq!((b.word(0), b.poll_mrq().0), (9, UTOFU_ERR_NOT_FOUND));
            assert_eq!(a.deregister(), UTOFU_SUCCESS);
        },
    );
}

/// If one descriptor of a post fails, the others are sent, with their requested completions.
#[test]
fn one_of_several_that_are_posted_together_fails() {
    alone("tcq=2:ERR_TCQ_LENGTH", || {
        let (a, b) = two();
        let (mut words, mut used) = ([0u64; 24], 0);
        for block in 0..3 {
            let place = words[used / 8..].as_mut_ptr().cast();
            let (to, mut size) = (b.stadd + 8 * block, 0);
            ok!(utofu_prepare_put_piggyback8(
                a.handle,
                b.id,
                block + 1,
                to,
                8,
                0,
                LOCAL,
                place,
                &mut size
            ));
            used += size;
        }
        let all = words.as_mut_ptr().cast();
        ok!(utofu_post_toq(a.handle, all, used, cbdata(9)));
        assert_eq!(a.next_tcq(), (UTOFU_ERR_TCQ_LENGTH, 9));
        for end in [8, 24] {
            assert_eq!(a.notice(UTOFU_MRQ_TYPE_LCL_PUT).rmt_stadd, b.stadd + end);
        }
        assert_eq!(
            (a.poll_mrq().0, a.poll_tcq().0),
            (UTOFU_ERR_NOT_FOUND, UTOFU_ERR_NOT_FOUND)
        );
        assert_eq!([0, 8, 16].map(|at| b.word(at)), [1, 0, 3]);
    });
}
