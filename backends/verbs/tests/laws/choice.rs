//! The choice of a device, and the error if none can be used.

use unipgas_core::registry::Opening;
use unipgas_core::transport::Transport;
use unipgas_core::{Deadline, Error, Rights};
use unipgas_verbs::{Verbs, probe};

use crate::device::{self, inject};
use crate::node::{Node, until};
use crate::process::{alone, alone_with, with_others_on};

const DEVICE: &str = "UNIPGAS_VERBS_DEVICE";
const GID: &str = "UNIPGAS_VERBS_GID";

/// The nodes reach each other.
pub fn reach(node: &Node, other: &Node) {
    assert_eq!(probe(), Ok(()));
    node.works(&node.know(other));
    other.works(&other.know(node));
}

/// Opening the transport fails. The reason is one line that contains all of `says`.
fn refused(says: &[&str]) {
    device::load();
    let error = Verbs::from_env(&Opening::on_one_host(2)).map(drop);
    let error = error.unwrap_err();
    let text = error.to_string();
    println!("{text}");
    assert!(
        matches!(error, Error::Unreachable(_) | Error::InvalidArgument(_)),
        "{text}"
    );
    assert!(!text.contains('\n'));
    assert!(says.iter().all(|what| text.contains(what)), "{text}");
    // The error also names its kind; the probe gives only the reason.
    assert!(text.ends_with(&probe().unwrap_err()), "{text}");
}

#[test]
fn devices_by_name() {
    let verbs = "devices=2,ports=2";
    for device in ["double0", "double1", "double0:1", "double1:2"] {
        alone_with(verbs, &[(DEVICE, device)], || {
            reach(&Node::open(), &Node::open())
        });
    }
}

/// Devices with few features are usable.
#[test]
fn devices_that_can_do_little() {
    for verbs in [
        "odp=1",
        "atomics=none",
        "atomics=glob,rd_atom=1",
        "inline=16,mtu=256",
        "max_qp_wr=4,max_cqe=128,max_srq_wr=128",
        "max_sge=1,gids=1",
        "max_msg_sz=4096",
    ] {
        alone(verbs, || reach(&Node::open(), &Node::open()));
    }
}

#[test]
fn devices_that_are_none() {
    let verbs = "devices=2,ports=2";
    alone_with(verbs, &[(DEVICE, "mlx5_0")], || {
        refused(&["mlx5_0", "double0, double1", DEVICE])
    });
    alone_with(verbs, &[(DEVICE, "double0:3")], || {
        refused(&["double0", "port 3"])
    });
    for wrong in ["double0:0", "double0:x", "double0:", "double0:999"] {
        alone_with(verbs, &[(DEVICE, wrong)], || {
            refused(&[DEVICE, wrong, "mlx5_0:1"])
        });
    }
    alone("devices=0", || refused(&["no RDMA device"]));
    alone_with("devices=0", &[(DEVICE, "double0")], || {
        refused(&["no RDMA device"])
    });
    alone("max_srq=0", || {
        refused(&["double0", "shared receive queues"])
    });
}

#[test]
fn addresses_by_number() {
    for link in ["link=ib", "link=eth"] {
        alone(link, || reach(&Node::open(), &Node::open()));
        for gid in ["0", "1", "3"] {
            alone_with(link, &[(GID, gid)], || reach(&Node::open(), &Node::open()));
        }
        alone_with(link, &[(GID, "77")], || refused(&["double0", "GID 77"]));
        alone_with(link, &[(GID, "x")], || refused(&[GID, "x"]));
    }
    alone_with(
        "link=eth,devices=2,ports=2",
        &[(DEVICE, "double1:2"), (GID, "2")],
        || reach(&Node::open(), &Node::open()),
    );
}

#[test]
fn patience_by_its_exponent() {
    const TIMEOUT: &str = "UNIPGAS_VERBS_TIMEOUT";
    alone_with("", &[(TIMEOUT, "8")], || {
        reach(&Node::open(), &Node::open())
    });
    alone_with("", &[(TIMEOUT, "31")], || {
        reach(&Node::open(), &Node::open())
    });
    for wrong in ["7", "32", "-1", "long"] {
        alone_with("", &[(TIMEOUT, wrong)], || {
            refused(&[TIMEOUT, wrong, "8 to 31"])
        });
    }
}

#[test]
fn a_port_that_is_down_is_not_used() {
    alone("devices=2,ports=2", || {
        // The ports go down one after the other, and the next port is used.
        for down in [
            "port_down=1@double0",
            "port_down=2@double0",
            "port_down=1@double1",
        ] {
            inject(down);
            reach(&Node::open(), &Node::open());
        }
        inject("port_down");
        let error = probe().unwrap_err();
        for what in [
            "double0",
            "double1",
            "port 1 is not active",
            "port 2 is not active",
        ] {
            assert!(error.contains(what), "{error}");
        }
        assert!(!error.contains('\n'));
        inject("port_up=2@double1");
        reach(&Node::open(), &Node::open());
    });
}

/// Ranks use different devices, which reach each other.
#[test]
fn ranks_share_the_devices() {
    with_others_on(
        "devices=3",
        &[
            ("UNIPGAS_JOB", "shares"),
            ("UNIPGAS_RANK", "0"),
            ("UNIPGAS_SIZE", "4"),
        ],
        |others| {
            let node = Node::open();
            for rank in ["1", "2", "3"] {
                let mut other = others.begin(&[("UNIPGAS_RANK", rank)]);
                let link = node.find(&other.wire.hear());
                node.works(&link);
                // A device that only some ranks use fails.
                other.wire.say(b"dies");
                let shares = other.wire.hear();
                assert_eq!(shares == b"shares", rank == "3", "{rank}");
                other.ends();
            }
        },
        |mut wire| {
            let node = Node::open();
            wire.say(&node.name());
            assert_eq!(wire.hear(), b"dies");
            inject("device_fatal@double0");
            // A failed device registers no memory.
            let lives = node.transport.allocate(4096, Rights::FULL).is_ok();
            wire.say(if lives { b"another" } else { b"shares" });
        },
    );
}

/// InfiniBand and Ethernet do not reach each other, and the error states this.
#[test]
fn links_of_two_kinds() {
    with_others_on(
        "link=ib",
        &[],
        |others| {
            let node = Node::open();
            let verbs = std::env::var("VERBS_DOUBLE")
                .unwrap()
                .replace("link=ib", "link=eth");
            let mut other = others.begin(&[("VERBS_DOUBLE", &verbs)]);
            let name = other.wire.hear();
            let error = node.transport.connect_within(&name[8..], Deadline::Never);
            let text = error.map(drop).unwrap_err().to_string();
            assert!(
                text.contains("InfiniBand or Ethernet") && text.contains(DEVICE),
                "{text}"
            );
            other.wire.say(b"end");
            other.ends();
        },
        |mut wire| {
            let node = Node::open();
            wire.say(&node.name());
            let mut end = false;
            std::thread::scope(|scope| {
                let heard = scope.spawn(|| wire.hear());
                until(&node.transport, || {
                    end |= heard.is_finished();
                    end
                });
            });
        },
    );
}
