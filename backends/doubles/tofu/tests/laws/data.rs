//! What keeps the rules passes: the bytes, the notices, the values.

use unipgas_utofu_sys::*;

use crate::kit::*;
use crate::process::alone;

#[test]
fn bytes_and_notices_pass() {
    alone("", || {
        let (a, b) = two();
        a.set(0, 11);
        assert_eq!(a.put(&b, TCQ | LOCAL | REMOTE, 5), UTOFU_SUCCESS);
        assert_eq!(a.next_tcq(), (UTOFU_SUCCESS, 5));
        let local = a.notice(UTOFU_MRQ_TYPE_LCL_PUT);
        assert_eq!((local.vcq_id, local.edata), (b.id, 7));
        let remote = b.notice(UTOFU_MRQ_TYPE_RMT_PUT);
        assert_eq!((remote.vcq_id, remote.rmt_stadd), (a.id, b.stadd + 8));
        assert_eq!(b.word(0), 11);

        b.set(0, 12);
        assert_eq!(a.get(&b, LOCAL, 6), UTOFU_SUCCESS);
        a.notice(UTOFU_MRQ_TYPE_LCL_GET);
        assert_eq!(a.word(0), 12);

        assert_eq!(a.add(&b, 3, 9, LOCAL), UTOFU_SUCCESS);
        let told = a.notice(UTOFU_MRQ_TYPE_LCL_ARMW);
        assert_eq!((told.rmt_value, told.edata, b.word(0)), (12, 9, 15));
        let code = call!(utofu_cswap8(
            a.handle,
            b.id,
            15,
            1,
            b.stadd,
            0,
            LOCAL,
            cbdata(0)
        ));
        assert_eq!(
            (code, a.notice(UTOFU_MRQ_TYPE_LCL_ARMW).rmt_value),
            (UTOFU_SUCCESS, 15)
        );
        assert_eq!(b.word(0), 1);

        assert_eq!((a.deregister(), b.deregister()), (0, 0));
        assert_eq!((a.free(), b.free()), (0, 0));
    });
}

#[test]
fn blocks_pass_each_with_its_completions() {
    alone("", || {
        let (a, b) = two();
        for block in 0..4 {
            a.set(64 * block, block as u64 + 1);
        }
        let flags = TCQ | LOCAL;
        assert_eq!(a.put_stride(&b, (8, 64, 4), flags, 3), UTOFU_SUCCESS);
        for block in 0..4 {
            assert_eq!(a.next_tcq(), (UTOFU_SUCCESS, 3));
            let told = a.notice(UTOFU_MRQ_TYPE_LCL_PUT);
            assert_eq!(told.rmt_stadd, b.stadd + 64 * block + 8);
            assert_eq!(b.word(64 * block as usize), block + 1);
        }
        b.set(64, 77);
        ok!(utofu_get_stride_gap(
            a.handle,
            b.id,
            a.stadd,
            b.stadd,
            8,
            64,
            2,
            0,
            LOCAL,
            1920,
            255,
            cbdata(0)
        ));
        a.notice(UTOFU_MRQ_TYPE_LCL_GET);
        a.notice(UTOFU_MRQ_TYPE_LCL_GET);
        assert_eq!((a.word(64), a.poll_mrq().0), (77, UTOFU_ERR_NOT_FOUND));
        assert_eq!(a.deregister(), UTOFU_SUCCESS);
    });
}

#[test]
fn prepared_descriptors_pass_together() {
    alone("", || {
        let (a, b) = two();
        let mut words = [0u64; 24];
        let (mut first, mut second) = (0, 0);
        let (put, size) = (words.as_mut_ptr(), &mut first);
        ok!(utofu_prepare_put_piggyback8(
            a.handle,
            b.id,
            42,
            b.stadd,
            8,
            1,
            TCQ,
            put.cast(),
            size
        ));
        let rest = words[first / 8..].as_mut_ptr();
        ok!(utofu_prepare_put_stride(
            a.handle,
            b.id,
            a.stadd,
            b.stadd + 8,
            8,
            8,
            2,
            2,
            TCQ | LOCAL,
            rest.cast(),
            &mut second
        ));
        a.set(0, 5);
        a.set(8, 6);
        for round in 1..3 {
            let all = words.as_mut_ptr().cast();
            ok!(utofu_post_toq(a.handle, all, first + second, cbdata(round)));
            for _ in 0..3 {
                assert_eq!(a.next_tcq(), (UTOFU_SUCCESS, round));
            }
            a.notice(UTOFU_MRQ_TYPE_LCL_PUT);
            a.notice(UTOFU_MRQ_TYPE_LCL_PUT);
            assert_eq!([0, 8, 16].map(|at| b.word(at)), [42, 5, 6]);
            b.set(0, 0);
        }
        ok!(utofu_post_toq(a.handle, cbdata(0), 0, cbdata(0)));
    });
}

/// The first one knows no more of the second one than where it is.
#[test]
fn processes_reach_each_other() {
    const STAG: u32 = 3;
    const CMP: utofu_cmp_id_t = 2;
    let vcq = || {
        let mut handle = 0;
        ok!(utofu_create_vcq_with_cmp_id(0, CMP, 0, &mut handle));
        handle
    };
    let second = |say: &dyn Fn(&str)| {
        let (handle, memory, mut stadd) = (vcq(), memory(), 0);
        let place = memory.cast();
        ok!(utofu_reg_mem_with_stag(
            handle, place, SIZE, STAG, 0, &mut stadd
        ));
        say(&coordinates().map(|at| at.to_string()).join(" "));
    };
    let first = |line: &str| {
        let coords: Vec<u8> = line.split(' ').map(|at| at.parse().unwrap()).collect();
        let mut coords: [u8; 6] = coords.try_into().unwrap();
        let (mut id, mut remote) = (0, 0);
        let place = coords.as_mut_ptr();
        ok!(utofu_construct_vcq_id(place, 0, 0, CMP, &mut id));
        ok!(utofu_query_stadd(id, STAG, &mut remote));
        let a = TestVcq::new(0, 0);
        a.set(0, 40);
        let mut there = TestVcq {
            handle: 0,
            id,
            memory: std::ptr::null_mut(),
            stadd: remote,
        };
        assert_eq!(a.put(&there, LOCAL | REMOTE, 1), UTOFU_SUCCESS);
        a.notice(UTOFU_MRQ_TYPE_LCL_PUT);
        assert_eq!(a.add(&there, 2, 0, LOCAL), UTOFU_SUCCESS);
        assert_eq!(a.notice(UTOFU_MRQ_TYPE_LCL_ARMW).rmt_value, 40);
        assert_eq!(a.get(&there, LOCAL, 0), UTOFU_SUCCESS);
        a.notice(UTOFU_MRQ_TYPE_LCL_GET);
        assert_eq!(a.word(0), 42);
        // What the library tells of a mistake passes, and ends what it is of.
        ok!(utofu_query_stadd(id, STAG + 1, &mut there.stadd));
        assert_eq!(a.put(&there, 0, 1), UTOFU_SUCCESS);
        assert_eq!(a.next_mrq().0, UTOFU_ERR_MRQ_RMT_STADD);
        assert_eq!((a.deregister(), a.free()), (UTOFU_SUCCESS, UTOFU_SUCCESS));
    };
    crate::process::two("late=1", first, second);
}

/// What is prepared leaves in session mode when puts arrive: a relay, which counts its steps.
#[test]
fn a_relay_goes_on_by_itself() {
    alone("", || {
        let (a, c) = (TestVcq::new(0, 0), TestVcq::new(2, 0));
        let relay = TestVcq::new(1, UTOFU_VCQ_FLAG_SESSION_MODE);
        ok!(utofu_nop(relay.handle, 0, cbdata(0)));
        assert_eq!(relay.put(&c, TCQ | REMOTE, 3), UTOFU_SUCCESS);
        assert_eq!(relay.poll_tcq().0, UTOFU_ERR_NOT_FOUND);
        assert_eq!(relay.unread_tcq(), 2);
        a.set(0, 8);
        assert_eq!(a.put(&relay, UTOFU_ONESIDED_FLAG_SPS(2), 0), UTOFU_SUCCESS);
        c.notice(UTOFU_MRQ_TYPE_RMT_PUT);
        assert_eq!((c.word(0), relay.next_tcq()), (8, (UTOFU_SUCCESS, 3)));
        assert_eq!(relay.deregister(), UTOFU_SUCCESS);
    });
}

#[test]
fn what_is_done_is_counted() {
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR"))
        .join(format!("mock-counts-{}", std::process::id()));
    let name = "data::what_is_done_is_counted";
    if !crate::process::is_inside() {
        let environment = [("MOCK_TOFU_COUNTS", path.to_str().unwrap())];
        let output = crate::process::again(name, "", &environment);
        assert!(output.status.success(), "{output:?}");
        let folder = path.parent().unwrap().read_dir().unwrap();
        let prefix = format!("{}.", path.file_name().unwrap().display());
        let mut written = folder.map(|entry| entry.unwrap().path()).filter(|file| {
            file.file_name()
                .unwrap()
                .to_str()
                .unwrap()
                .starts_with(&prefix)
        });
        let file = written.next().expect("the process has written its counts");
        assert!(written.next().is_none());
        let text = std::fs::read_to_string(&file).unwrap();
        std::fs::remove_file(&file).unwrap();
        let told: serde_json::Value = serde_json::from_str(&text).unwrap();
        let pid = file.extension().unwrap().to_str().unwrap();
        assert_eq!(told["pid"].to_string(), pid);
        assert_eq!(told["calls"]["utofu_nop"], 1);
        return;
    }
    let (a, b) = two();
    reset();
    assert!(counts()["calls"].as_object().unwrap().is_empty());
    for number in 0..3 {
        assert_eq!(a.put(&b, TCQ | LOCAL, number), UTOFU_SUCCESS);
    }
    let sps = UTOFU_ONESIDED_FLAG_SPS(2);
    assert_eq!(a.put(&b, sps, 0), UTOFU_SUCCESS);
    let told = counts();
    assert_eq!(told["calls"]["utofu_put"], 4);
    assert_eq!(told["flags"]["TCQ_NOTICE"], 3);
    assert_eq!(told["flags"]["LOCAL_MRQ_NOTICE"], 3);
    assert_eq!(told["flags"]["SPS"], 1);
    assert!(told["flags"]["STRONG_ORDER"].is_null());
    assert_eq!(told["most"]["toq"], 4);
    assert_eq!(told["most"]["local_notices"], 3);
    reset();
    ok!(utofu_nop(a.handle, 0, cbdata(0)));
}
